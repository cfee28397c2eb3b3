#pragma once

#include "services/controller/policy/policy.h"

namespace ragcache::controller {

// Least recently used: the priority is the number of accesses so far.
class LruPolicy : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  double on_access(const NodeAccess&) override { return static_cast<double>(++accesses_); }

 private:
  uint64_t accesses_ = 0;  // exact as a double up to 2^53
};

}  // namespace ragcache::controller
