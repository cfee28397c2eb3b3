#include "loadgen/report/progress.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <utility>

namespace ragcache::loadgen {

Progress::Progress(std::string what, uint64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(steady_now()),
      shown_(start_) {}

void Progress::show(uint64_t done) {
  const TimePoint now = steady_now();
  const bool last = done == total_;
  const Duration pause =
      terminal_ ? Duration(std::chrono::milliseconds(100)) : Duration(std::chrono::seconds(5));
  if (!last && now - shown_ < pause) return;
  shown_ = now;
  std::fprintf(stderr, "%s%" PRIu64 " of %" PRIu64 " %s, %.0f s%s", terminal_ ? "\r" : "", done,
               total_, what_.c_str(), to_seconds(now - start_), terminal_ && !last ? "" : "\n");
}

}  // namespace ragcache::loadgen
