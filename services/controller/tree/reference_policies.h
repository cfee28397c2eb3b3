#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/controller/policy/adaptive.h"
#include "services/controller/tree/knowledge_tree.h"

// Plain models of the policies, for tests: everything is found by scanning, nothing is kept
// incrementally. A node is named by its path, one letter a document.
namespace ragcache::controller {

inline constexpr uint32_t kBlockTokens = 16;

inline SegmentId id_of(const std::string& path) { return SegmentId::root(sha256(path), ""); }

// A letter's rank is the document's length in blocks.
inline uint32_t blocks_of(const std::string& path) {
  return 1 + static_cast<uint32_t>(path.back()) % 3;
}
inline uint32_t tokens_of(const std::string& path) { return blocks_of(path) * kBlockTokens - 5; }

// "SAB" is the chain S, SA, SAB.
inline std::vector<SegmentSpec> chain_of(const std::string& path) {
  std::vector<SegmentSpec> chain;
  for (size_t depth = 1; depth <= path.size(); ++depth) {
    const std::string prefix = path.substr(0, depth);
    chain.push_back({id_of(prefix), tokens_of(prefix)});
  }
  return chain;
}

class ReferencePolicy {
 public:
  struct Access {
    std::string path;
    bool cached;
    double cost_per_token;
  };

  explicit ReferencePolicy(size_t history_limit) : history_limit_(history_limit) {}
  virtual ~ReferencePolicy() = default;

  virtual void request() { requests_.emplace_back(); }
  virtual void access(const Access& access) {
    std::erase(departed_, access.path);
    known_[access.path].push_back({requests_.size(), access});
    requests_.back().push_back(access.path);
  }
  virtual double priority(const std::string& path, Tier tier) const = 0;
  virtual void evicted(Tier tier, double priority) {
    clocks_[tier] = std::max(clocks_[tier], priority);
  }
  virtual void left(const std::string& path) {
    if (!known_.contains(path) || std::count(departed_.begin(), departed_.end(), path)) return;
    departed_.push_back(path);
    if (departed_.size() <= history_limit_) return;
    known_.erase(departed_.front());
    departed_.erase(departed_.begin());
  }
  virtual void clear() {
    known_.clear();
    departed_.clear();
  }
  virtual bool admits(double, double) const { return true; }
  virtual double copy_worth(double) const { return std::numeric_limits<double>::infinity(); }
  virtual uint64_t epoch() const { return 0; }
  size_t known_nodes() const { return known_.size(); }

 protected:
  struct Known {
    size_t request;
    Access access;
  };
  const std::vector<Known>* known(const std::string& path) const {
    auto it = known_.find(path);
    return it == known_.end() ? nullptr : &it->second;
  }

  const size_t history_limit_;
  std::vector<std::vector<std::string>> requests_;
  std::map<std::string, std::vector<Known>> known_;
  std::vector<std::string> departed_;
  mutable std::map<Tier, double> clocks_;
};

class ReferenceLru : public ReferencePolicy {
 public:
  using ReferencePolicy::ReferencePolicy;
  // Later requests are used later, and in a request what stands further down.
  double priority(const std::string& path, Tier) const override {
    const auto* accesses = known(path);
    if (accesses == nullptr) return 0;
    return static_cast<double>(accesses->back().request) * 100 + static_cast<double>(path.size());
  }
};

class ReferenceLfu : public ReferencePolicy {
 public:
  using ReferencePolicy::ReferencePolicy;
  double priority(const std::string& path, Tier) const override {
    const auto* accesses = known(path);
    return accesses == nullptr ? 0 : static_cast<double>(accesses->size());
  }
};

class ReferenceGdsf : public ReferencePolicy {
 public:
  using ReferencePolicy::ReferencePolicy;
  double priority(const std::string& path, Tier tier) const override {
    const auto* accesses = known(path);
    if (accesses == nullptr) return clocks_[tier];
    return clocks_[tier] +
           static_cast<double>(accesses->size()) * cost(tokens_of(path)) / tokens_of(path);
  }
  static double cost(uint32_t tokens) { return 0.5 + 0.25 * tokens; }
};

class ReferencePgdsf : public ReferencePolicy {
 public:
  ReferencePgdsf(size_t history_limit, size_t window)
      : ReferencePolicy(history_limit), window_(window) {}
  double priority(const std::string& path, Tier tier) const override {
    const auto* accesses = known(path);
    if (accesses == nullptr) return clocks_[tier];
    double frequency = 0, cost = 0, misses = 0;
    for (auto it = accesses->rbegin(); it != accesses->rend(); ++it) {
      if (it->request + window_ > requests_.size()) ++frequency;
    }
    for (const Known& each : *accesses) {
      if (each.access.cached) continue;
      cost += each.access.cost_per_token;
      ++misses;
    }
    cost = misses > 0 ? cost / misses : ReferenceGdsf::cost(tokens_of(path)) / tokens_of(path);
    return clocks_[tier] + frequency * cost;
  }

 private:
  const size_t window_;
};

class ReferenceAdaptive : public ReferencePolicy {
 public:
  static constexpr std::array kHalfLives = AdaptivePolicy::kHalfLives;

  using ReferencePolicy::ReferencePolicy;
  void request() override {
    ReferencePolicy::request();
    for (Shadow& shadow : shadows_) {
      shadow.capacity = 0;
      for (const auto& [path, tokens] : resident_) shadow.capacity += tokens;
      shadow.shrink();
    }
    if (requests_.size() % AdaptivePolicy::kChoiceRequests == 0) choose();
  }
  void access(const Access& access) override {
    ReferencePolicy::access(access);
    const std::string& path = access.path;
    resident_[path] = tokens_of(path);
    std::array<bool, kHalfLives.size()> hits{};
    for (size_t i = 0; i < kHalfLives.size(); ++i)
      hits[i] = shadows_[i].access(path, score(path, i));
    for (size_t i = 0; i < kHalfLives.size(); ++i) {
      const double gain = (hits[i] - hits[chosen_]) * static_cast<double>(tokens_of(path));
      shadows_[i].gain += gain;
      shadows_[i].squares += gain * gain;
    }
  }
  void left(const std::string& path) override {
    resident_.erase(path);
    ReferencePolicy::left(path);
  }
  void clear() override {
    ReferencePolicy::clear();
    resident_.clear();
    shadows_ = {};
  }
  double priority(const std::string& path, Tier) const override {
    return known(path) == nullptr ? std::numeric_limits<double>::lowest() : score(path, chosen_);
  }
  bool admits(double worth, double victim) const override { return worth >= victim; }
  double copy_worth(double priority) const override {
    return priority - AdaptivePolicy::kCopyDiscount;
  }
  uint64_t epoch() const override { return epoch_; }

 private:
  struct Shadow {
    std::map<std::string, double> scores;
    uint64_t capacity = 0;
    double gain = 0, squares = 0;

    bool access(const std::string& path, double score) {
      const bool hit = scores.contains(path);
      scores[path] = score;
      shrink();
      return hit;
    }
    void shrink() {
      for (;;) {
        uint64_t tokens = 0;
        for (const auto& [path, score] : scores) tokens += tokens_of(path);
        if (tokens <= capacity) return;
        scores.erase(std::min_element(scores.begin(), scores.end(), [](auto& a, auto& b) {
          return std::make_pair(a.second, id_of(a.first)) <
                 std::make_pair(b.second, id_of(b.first));
        }));
      }
    }
  };

  // From all that was ever asked, rounded as the policy rounds what it keeps.
  double score(const std::string& path, size_t half_life) const {
    const double h = kHalfLives[half_life];
    float frequency = 0;
    size_t last = 0;
    for (const Known& each : *known(path)) {
      const double kept = frequency * std::exp2(-static_cast<double>(each.request - last) / h);
      frequency = static_cast<float>(kept + 1);
      last = each.request;
    }
    const uint32_t tokens = tokens_of(path);
    return std::log2(double{frequency} * ReferenceGdsf::cost(tokens) / tokens) +
           static_cast<double>(last) / h;
  }

  void choose() {
    size_t best = chosen_;
    for (size_t i = 0; i < shadows_.size(); ++i) {
      const bool significant = shadows_[i].gain > 2 * std::sqrt(shadows_[i].squares);
      if (significant && (best == chosen_ || shadows_[i].gain > shadows_[best].gain)) best = i;
    }
    for (Shadow& shadow : shadows_) {
      shadow.gain *= best != chosen_ ? 0 : std::exp2(-1.0 / 8);
      shadow.squares *= best != chosen_ ? 0 : std::exp2(-1.0 / 8);
    }
    epoch_ += best != chosen_;
    chosen_ = best;
  }

  std::map<std::string, uint32_t> resident_;
  std::array<Shadow, kHalfLives.size()> shadows_;
  size_t chosen_ = kHalfLives.size() - 1;
  uint64_t epoch_ = 0;
};

// Not a policy that anyone would want: it forbids copies, and changes all priorities every so
// often.
class ReferenceFickle : public ReferencePolicy {
 public:
  static constexpr size_t kEpochRequests = 40;

  using ReferencePolicy::ReferencePolicy;
  static double priority_of(const SegmentId& id, uint64_t accesses, uint64_t epoch, Tier tier) {
    const uint64_t salt = accesses * 31 + epoch * 7 + (tier == Tier::kHost ? 3 : 0);
    return static_cast<double>((id.bytes[0] + id.bytes[1] * 256u) * (2 * salt + 1) % 100);
  }
  double priority(const std::string& path, Tier tier) const override {
    const auto* accesses = known(path);
    return priority_of(id_of(path), accesses == nullptr ? 0 : accesses->size(), epoch(), tier);
  }
  bool admits(double priority, double victim) const override { return priority > victim; }
  double copy_worth(double priority) const override { return priority - 30; }
  uint64_t epoch() const override { return requests_.size() / kEpochRequests; }
};

}  // namespace ragcache::controller
