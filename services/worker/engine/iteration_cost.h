#pragma once

#include <array>
#include <cstddef>
#include <deque>

#include "common/clock.h"

namespace ragcache::worker {

// How long an iteration that prefills will take, learnt from those that were: a constant, a cost of
// each new token, and one of each (new token, token that it attends to) pair.
//
// Fitted by least squares of relative errors to the last iterations, so that it follows a machine
// that grows slower; held to "proportional to the tokens" where these say nothing, so that it makes
// sense from the first one on. An iteration that overran its limit makes the next ones cautious.
class IterationCost {
 public:
  // What one iteration computes.
  struct Work {
    size_t tokens = 0;
    size_t pairs = 0;

    // `count` new tokens behind `context` others.
    void add(size_t count, size_t context) {
      tokens += count;
      pairs += count * context + count * (count + 1) / 2;
    }
  };

  // An iteration of at least one prompt token took `seconds`, where `limit` was meant.
  void observe(const Work& work, double seconds, double limit);

  // Seconds, without caution. 0 before the first observation.
  double predict(const Work& work) const;

  // The most of `wanted` tokens behind `context` others that an iteration of `work` can take beside
  // it and be expected to end within `limit` seconds; a multiple of kGranule where less than
  // `wanted`, and 0 where not even one granule fits. Before the first observation at most
  // kFirstTokens.
  size_t fit(const Work& work, size_t context, size_t wanted, double limit) const;

  static constexpr size_t kGranule = 16;
  static constexpr size_t kFirstTokens = 64;

 private:
  struct Observation {
    Work work;
    double seconds;
  };

  void refit();

  std::deque<Observation> window_;
  std::array<double, 3> cost_{};  // constant, of kTokens tokens, of kPairs pairs
  double caution_ = 1;            // share of the limit that is planned for
};

}  // namespace ragcache::worker
