#include "services/controller/policy/adaptive.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ragcache::controller {
namespace {

// What was hit so many choices ago counts half.
constexpr double kGainHalfLifeChoices = 8;
// A gain must be so many of its standard deviations, were it chance.
constexpr double kSignificance = 2;

}  // namespace

AdaptivePolicy::AdaptivePolicy(const PolicyOptions& options)
    : prefill_seconds_(options.prefill_seconds), history_(options.departed_limit()) {}

void AdaptivePolicy::on_request() {
  ++request_;
  for (Shadow& shadow : shadows_) shadow.cache.set_capacity(resident_tokens_ >> sample_shift_);
  if (request_ % kChoiceRequests == 0) choose();
}

void AdaptivePolicy::on_access(const NodeAccess& access) {
  Entry& entry = history_.access(access.id);
  const auto age = static_cast<double>(request_ - entry.last_request);
  const bool is_new = entry.last_request == 0;
  for (size_t i = 0; i < kHalfLives.size(); ++i) {
    const double kept = is_new ? 0 : entry.frequency[i] * std::exp2(-age / kHalfLives[i]);
    entry.frequency[i] = static_cast<float>(kept + 1);
  }
  entry.last_request = request_;
  resident_tokens_ += access.tokens - entry.resident_tokens;
  entry.resident_tokens = access.tokens;

  if (is_sampled(access.id)) ask_shadows(entry, access.id, access.tokens);
}

void AdaptivePolicy::ask_shadows(const Entry& entry, const SegmentId& id, uint32_t tokens) {
  std::array<bool, kHalfLives.size()> hits;
  bool full = false;
  for (size_t i = 0; i < kHalfLives.size(); ++i) {
    hits[i] = shadows_[i].cache.access(id, tokens, score(entry, tokens, i));
    full |= shadows_[i].cache.size() > kShadowNodesMax;
  }
  for (size_t i = 0; i < kHalfLives.size(); ++i) {
    if (hits[i] == hits[chosen_]) continue;
    const double gain = hits[i] ? static_cast<double>(tokens) : -static_cast<double>(tokens);
    shadows_[i].gain += gain;
    shadows_[i].gain_squares += gain * gain;
  }
  if (!full) return;
  ++sample_shift_;
  for (Shadow& shadow : shadows_) {
    shadow.cache.erase_if([this](const SegmentId& each) { return !is_sampled(each); });
  }
}

double AdaptivePolicy::priority(const SegmentId& id, uint32_t tokens, Tier) {
  const Entry* entry = history_.find(id);
  // Of what no request has asked for, everything goes before what one has.
  if (entry == nullptr || tokens == 0) return std::numeric_limits<double>::lowest();
  return score(*entry, tokens, chosen_);
}

double AdaptivePolicy::score(const Entry& entry, uint32_t tokens, size_t half_life) const {
  return std::log2(double{entry.frequency[half_life]} * prefill_seconds_(0, tokens) / tokens) +
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
    shadow = Shadow();
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
    const Shadow& shadow = shadows_[i];
    if (shadow.gain > kSignificance * std::sqrt(shadow.gain_squares) &&
        (best == chosen_ || shadow.gain > shadows_[best].gain)) {
      best = i;
    }
  }
  const bool changes = best != chosen_;
  const double kept = changes ? 0 : std::exp2(-1 / kGainHalfLifeChoices);
  for (Shadow& shadow : shadows_) {
    shadow.gain *= kept;
    shadow.gain_squares *= kept;
  }
  if (!changes) return;
  chosen_ = best;
  ++epoch_;
}

}  // namespace ragcache::controller
