#include "services/worker/kv/segment_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ragcache::worker {

Segment* SegmentTable::find(const SegmentId& id) {
  auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : &it->second;
}

Segment* SegmentTable::find_on_device(const SegmentId& id) {
  Segment* segment = find(id);
  return segment != nullptr && segment->on_device() ? segment : nullptr;
}

Segment& SegmentTable::find_or_add(const SegmentKey& key) {
  RAG_CHECK(key.token_count > 0);
  return segments_.try_emplace(key.id, Segment{.key = key}).first->second;
}

void SegmentTable::forget_if_nowhere(const SegmentId& id) {
  auto it = segments_.find(id);
  if (!it->second.on_device() && !it->second.host.has_value()) segments_.erase(it);
}

Segment& SegmentTable::add_to_device(const SegmentKey& key, std::vector<int32_t> blocks) {
  Segment& segment = find_or_add(key);
  RAG_CHECK(!segment.on_device() && segment.pins == 0 && !blocks.empty());
  device_blocks_ += static_cast<uint32_t>(blocks.size());
  segment.blocks = std::move(blocks);
  return segment;
}

std::vector<int32_t> SegmentTable::remove_from_device(const SegmentId& id) {
  Segment* segment = find_on_device(id);
  RAG_CHECK(segment != nullptr && segment->pins == 0);
  std::vector<int32_t> blocks = std::exchange(segment->blocks, {});
  device_blocks_ -= static_cast<uint32_t>(blocks.size());
  forget_if_nowhere(id);
  return blocks;
}

Segment& SegmentTable::add_to_host(const SegmentKey& key, HostCopy copy) {
  Segment& segment = find_or_add(key);
  RAG_CHECK(!segment.host.has_value() && !copy.blocks.empty());
  host_blocks_ += static_cast<uint32_t>(copy.blocks.size());
  segment.host = std::move(copy);
  return segment;
}

HostCopy SegmentTable::remove_from_host(const SegmentId& id) {
  Segment* segment = find(id);
  RAG_CHECK(segment != nullptr && segment->host.has_value());
  HostCopy copy = *std::exchange(segment->host, std::nullopt);
  host_blocks_ -= static_cast<uint32_t>(copy.blocks.size());
  forget_if_nowhere(id);
  return copy;
}

void SegmentTable::pin(Segment& segment) {
  RAG_CHECK(segment.on_device());
  if (segment.pins++ == 0) ++pinned_;
}

void SegmentTable::unpin(Segment& segment) {
  RAG_CHECK(segment.pins > 0);
  if (--segment.pins == 0) --pinned_;
}

std::vector<Segment*> SegmentTable::in_chain_order() {
  std::vector<Segment*> order;
  for (auto& [id, segment] : segments_) order.push_back(&segment);
  std::stable_sort(order.begin(), order.end(),
                   [](const Segment* a, const Segment* b) { return a->key.depth < b->key.depth; });
  return order;
}

}  // namespace ragcache::worker
