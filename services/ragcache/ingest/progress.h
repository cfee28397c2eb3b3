#pragma once

#include <cstdint>

#include "common/clock.h"

namespace ragcache {

// How far an ingest has come, on standard error: a bar on a terminal, a line every few seconds
// elsewhere. One thread.
class Progress {
 public:
  // total: documents, 0 if that is not known.
  explicit Progress(uint64_t total);

  // acknowledged: documents that the server has stored; tokens: embedded for them.
  void show(uint64_t sent, uint64_t acknowledged, uint64_t tokens, bool last);
  // Before something else is printed.
  void end_line();

 private:
  const uint64_t total_;
  const bool terminal_;
  const TimePoint start_;
  TimePoint shown_;
  bool in_line_ = false;
};

}  // namespace ragcache
