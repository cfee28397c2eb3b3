#include "services/worker/kv/segment_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ragcache::worker {

Segment* SegmentTable::find(const SegmentId& id) {
  auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : &it->second;
}

Segment& SegmentTable::insert(Segment segment) {
  RAG_CHECK(segment.pins == 0 && segment.token_count > 0);
  blocks_ += static_cast<uint32_t>(segment.blocks.size());
  const SegmentId id = segment.id;
  auto [it, inserted] = segments_.emplace(id, std::move(segment));
  RAG_CHECK(inserted);
  return it->second;
}

std::vector<int32_t> SegmentTable::erase(const SegmentId& id) {
  auto it = segments_.find(id);
  RAG_CHECK(it != segments_.end() && it->second.pins == 0);
  std::vector<int32_t> blocks = std::move(it->second.blocks);
  segments_.erase(it);
  blocks_ -= static_cast<uint32_t>(blocks.size());
  return blocks;
}

void SegmentTable::pin(Segment& segment) {
  if (segment.pins++ == 0) ++pinned_;
}

void SegmentTable::unpin(Segment& segment) {
  RAG_CHECK(segment.pins > 0);
  if (--segment.pins == 0) --pinned_;
}

std::vector<const Segment*> SegmentTable::in_chain_order() const {
  std::vector<const Segment*> order;
  for (const auto& [id, segment] : segments_) order.push_back(&segment);
  std::stable_sort(order.begin(), order.end(),
                   [](const Segment* a, const Segment* b) { return a->depth < b->depth; });
  return order;
}

}  // namespace ragcache::worker
