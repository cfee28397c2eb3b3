#pragma once

#include <chrono>

namespace ragcache {

using Duration = std::chrono::nanoseconds;

// Monotonic time since an arbitrary start; in a simulation, virtual time.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

inline int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline uint64_t to_us(Duration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace ragcache
