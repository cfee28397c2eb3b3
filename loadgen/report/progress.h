#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"

namespace ragcache::loadgen {

// How far a long step has come, on standard error: over one line on a terminal, a line every few
// seconds elsewhere. One thread.
class Progress {
 public:
  Progress(std::string what, uint64_t total);

  void show(uint64_t done);

 private:
  const std::string what_;
  const uint64_t total_;
  const bool terminal_;
  const TimePoint start_;
  TimePoint shown_;
};

}  // namespace ragcache::loadgen
