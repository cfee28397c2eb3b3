#include "services/ragcache/ingest/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ragcache {

Progress::Progress(uint64_t total)
    : total_(total), terminal_(isatty(STDERR_FILENO) != 0), start_(steady_now()), shown_(start_) {}

void Progress::show(uint64_t sent, uint64_t acknowledged, uint64_t tokens, bool last) {
  const TimePoint now = steady_now();
  const Duration pause =
      terminal_ ? Duration(std::chrono::milliseconds(100)) : Duration(std::chrono::seconds(5));
  if (!last && now - shown_ < pause) return;
  shown_ = now;
  const double seconds = std::max(1e-3, to_seconds(now - start_));
  std::string bar;
  std::string of_total;
  if (total_ > 0) {
    constexpr double kWidth = 30;
    const double share = static_cast<double>(acknowledged) / static_cast<double>(total_);
    const auto filled = static_cast<size_t>(std::min(1.0, share) * kWidth);
    bar = absl::StrCat("[", std::string(filled, '#'),
                       std::string(static_cast<size_t>(kWidth) - filled, '.'), "] ");
    of_total = absl::StrCat(" of ", total_);
  }
  std::fprintf(stderr, "%s%s%llu%s documents sent, %llu stored, %.0f tokens/s, %.0f s",
               terminal_ ? "\r" : "", bar.c_str(), static_cast<unsigned long long>(sent),
               of_total.c_str(), static_cast<unsigned long long>(acknowledged),
               static_cast<double>(tokens) / seconds, seconds);
  in_line_ = true;
  if (!terminal_ || last) end_line();
}

void Progress::end_line() {
  if (std::exchange(in_line_, false)) std::fprintf(stderr, "\n");
}

}  // namespace ragcache
