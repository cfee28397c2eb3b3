#include "services/controller/policy/pgdsf.h"

#include <algorithm>

namespace ragcache::controller {

void PgdsfPolicy::on_request() {
  ++request_;
  while (!window_.empty() && window_.front().request + window_requests_ <= request_) {
    const Access& old = window_.front();
    Entry* entry = history_.find(old.id);
    if (entry != nullptr && entry->first_request <= old.request) --entry->frequency;
    window_.pop_front();
  }
}

void PgdsfPolicy::on_access(const NodeAccess& access) {
  Entry& entry = history_.access(access.id);
  if (entry.first_request == 0) entry.first_request = request_;
  if (!access.cached) {
    entry.cost_sum += access.cost_seconds / std::max(1u, access.new_tokens);
    ++entry.misses;
  }
  ++entry.frequency;
  window_.push_back({request_, access.id});
}

double PgdsfPolicy::priority(const SegmentId& id, uint32_t tokens, Tier tier) {
  const Entry* entry = history_.find(id);
  if (entry == nullptr || tokens == 0) return clocks_.at(tier);
  // A node taken over from a worker may never have been missed: then as if it were computed alone.
  const double cost =
      entry->misses > 0 ? entry->cost_sum / entry->misses : prefill_seconds_(0, tokens) / tokens;
  return clocks_.at(tier) + entry->frequency * cost;
}

void PgdsfPolicy::clear() {
  history_.clear();
  window_.clear();
}

}  // namespace ragcache::controller
