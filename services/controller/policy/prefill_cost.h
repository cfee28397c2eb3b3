#pragma once

#include <cstdint>

namespace ragcache::controller {

class PrefillCost {
 public:
  double seconds(uint32_t cached, uint32_t fresh) const {
    return (3 + 0.25 * fresh + 1.5e-5 * fresh * (cached + fresh / 2.0)) / 1e3;
  }
};

}  // namespace ragcache::controller
