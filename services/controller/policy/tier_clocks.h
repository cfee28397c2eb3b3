#pragma once

#include <algorithm>

#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// The logical clocks of the Greedy-Dual policies, one a tier: the highest priority that was evicted
// there. What is accessed later starts from it, so what was once valuable grows old.
class TierClocks {
 public:
  double at(Tier tier) const { return tier == Tier::kDevice ? device_ : host_; }
  void on_evict(Tier tier, double priority) {
    double& clock = tier == Tier::kDevice ? device_ : host_;
    clock = std::max(clock, priority);
  }

 private:
  double device_ = 0;
  double host_ = 0;
};

}  // namespace ragcache::controller
