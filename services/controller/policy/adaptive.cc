#include "services/controller/policy/adaptive.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ragcache::controller {
namespace {

constexpr size_t kFirstChoice = 2;
// What was hit so many choices ago counts half.
constexpr double kHitsHalfLifeChoices = 8;
// A half-life must have hit so much more than the one in use, lest the two take turns.
constexpr double kChangeFactor = 1.01;

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PolicyOptions& options)
    : prefill_seconds_(options.prefill_seconds),
      history_(options.departed_limit()),
      chosen_(kFirstChoice) {}

void AdaptivePolicy::on_request() {
  ++request_;
  for (Shadow& shadow : shadows_) shadow.cache.set_capacity(resident_tokens_ >> sample_shift_);
  if (request_ % kChoiceRequests == 0) choose();
}

void AdaptivePolicy::on_access(const NodeAccess& access) {
  Entry& entry = history_.access(access.id);
  const auto age = static_cast<double>(request_ - entry.last_request);
  for (size_t i = 0; i < kHalfLives.size(); ++i) {
    entry.frequency[i] =
        entry.frequency[i] * static_cast<float>(std::exp2(-age / kHalfLives[i])) + 1;
  }
  entry.last_request = request_;
  if (!access.cached) {
    entry.cost_sum += static_cast<float>(access.cost_seconds / std::max(1u, access.new_tokens));
    ++entry.misses;
  }
  resident_tokens_ += access.tokens - entry.resident_tokens;
  entry.resident_tokens = access.tokens;

  if (!is_sampled(access.id)) return;
  for (size_t i = 0; i < kHalfLives.size(); ++i) {
    Shadow& shadow = shadows_[i];
    if (shadow.cache.access(access.id, access.tokens, score(entry, access.tokens, i))) {
      shadow.hits += access.tokens;
    }
    if (shadow.cache.size() <= kShadowNodesMax) continue;
    ++sample_shift_;
    for (Shadow& each : shadows_) {
      each.cache.erase_if([this](const SegmentId& id) { return !is_sampled(id); });
    }
  }
}

double AdaptivePolicy::priority(const SegmentId& id, uint32_t tokens, Tier) {
  const Entry* entry = history_.find(id);
  // Of what no request has asked for, everything goes before what one has.
  if (entry == nullptr || tokens == 0) return std::numeric_limits<double>::lowest();
  return score(*entry, tokens, chosen_);
}

double AdaptivePolicy::score(const Entry& entry, uint32_t tokens, size_t half_life) const {
  const double cost = entry.misses > 0 ? double{entry.cost_sum} / entry.misses
                                       : prefill_seconds_(0, tokens) / tokens;
  return std::log2(double{entry.frequency[half_life]} * cost) +
         static_cast<double>(entry.last_request) / kHalfLives[half_life];
}

void AdaptivePolicy::on_leave(const SegmentId& id) {
  if (Entry* entry = history_.find(id)) {
    resident_tokens_ -= entry->resident_tokens;
    entry->resident_tokens = 0;
  }
  history_.leave(id);
}

void AdaptivePolicy::clear() {
  history_.clear();
  resident_tokens_ = 0;
  for (Shadow& shadow : shadows_) {
    shadow.cache.clear();
    shadow.hits = 0;
  }
}

bool AdaptivePolicy::is_sampled(const SegmentId& id) const {
  uint64_t bits = 0;  // of a hash already
  std::memcpy(&bits, id.bytes.data(), sizeof(bits));
  return (bits & ((uint64_t{1} << sample_shift_) - 1)) == 0;
}

void AdaptivePolicy::choose() {
  size_t best = chosen_;
  for (size_t i = 0; i < shadows_.size(); ++i) {
    if (shadows_[i].hits > shadows_[best].hits) best = i;
  }
  if (shadows_[best].hits > kChangeFactor * shadows_[chosen_].hits) {
    chosen_ = best;
    ++epoch_;
  }
  for (Shadow& shadow : shadows_) shadow.hits *= std::exp2(-1 / kHitsHalfLifeChoices);
}

}  // namespace ragcache::controller
