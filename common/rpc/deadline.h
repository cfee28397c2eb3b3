#pragma once

#include <chrono>

#include "common/clock.h"

namespace ragcache {

// The moment `timeout` from now, as gRPC's deadlines take it: they are in wall time.
inline std::chrono::system_clock::time_point deadline_in(Duration timeout) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
}

// A call's deadline in steady time; TimePoint::max() if it has none.
inline TimePoint steady_deadline(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return TimePoint::max();
  return steady_now() + (deadline - std::chrono::system_clock::now());
}

}  // namespace ragcache
