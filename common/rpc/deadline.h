#pragma once

#include <chrono>

#include "common/clock.h"

namespace ragcache {

// The moment `timeout` from now, as gRPC's deadlines take it: they are in wall time.
inline std::chrono::system_clock::time_point deadline_in(Duration timeout) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
}

}  // namespace ragcache
