#include "services/worker/profile/profiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status.h"

namespace ragcache::worker {
namespace {

// Spent on all points. What is not measured by then goes on as the points before it do.
constexpr double kSeconds = 45;
// A point is the least of a few runs, unless one takes long: what disturbs a run makes it longer.
constexpr int kRuns = 3;
constexpr double kPointSeconds = 0.3;
// So many columns must be measured where blocks are lacking for more: a line takes two points.
constexpr size_t kColumnsMin = 2;

// The point goes on the line of the two with fewer new tokens.
double extrapolate(const PrefillProfile& profile, size_t row, size_t column) {
  const size_t columns = profile.new_tokens.size();
  const double last = profile.seconds[row * columns + column - 1];
  const double tokens = profile.new_tokens[column];
  const double last_tokens = profile.new_tokens[column - 1];
  if (column == 1) return last * tokens / last_tokens;
  const double slope = (last - profile.seconds[row * columns + column - 2]) /
                       (last_tokens - profile.new_tokens[column - 2]);
  return last + std::max(slope, 0.0) * (tokens - last_tokens);
}

}  // namespace

Profiler::Profiler(std::string path, ProfileKey key, uint32_t max_tokens, Measure measure)
    : path_(std::move(path)),
      key_(std::move(key)),
      max_tokens_(max_tokens),
      measure_(std::move(measure)) {}

void Profiler::profile(bool again, Listener listener) {
  if (!again) {
    const auto saved = load_profile(path_);
    if (saved.ok() && saved->key == key_) return listener.done(*saved);
    if (!saved.ok() && !absl::IsNotFound(saved.status())) {
      log::warn("the saved profile is measured anew",
                {{"profile", path_}, {"reason", std::string(saved.status().message())}});
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(running_, true)) {
      return listener.failed(absl::AbortedError("a profile is being measured already"));
    }
  }
  auto run = std::make_shared<Run>();
  run->profile = profile_grid(key_, max_tokens_);
  run->listener = std::move(listener);
  go_on(std::move(run));
}

void Profiler::go_on(std::shared_ptr<Run> run) {
  PrefillProfile& profile = run->profile;
  const size_t rows = profile.cached_tokens.size();
  // Cheap points first: all rows of few new tokens, then of more.
  for (; run->next < profile.seconds.size(); ++run->next) {
    const size_t row = run->next % rows;
    const size_t column = run->next / rows;
    const uint32_t cached = profile.cached_tokens[row];
    const uint32_t fresh = profile.new_tokens[column];
    const size_t index = row * profile.new_tokens.size() + column;
    if (column > 0 &&
        (run->spent > kSeconds || fresh >= run->too_many || cached + fresh > max_tokens_)) {
      profile.seconds[index] = extrapolate(profile, row, column);
      continue;
    }
    measure_(cached, fresh,
             [this, run, index, cached, fresh](const absl::StatusOr<double>& seconds) {
               measured(run, index, cached, fresh, seconds);
             });
    return;
  }
  finish(*run);
}

void Profiler::measured(std::shared_ptr<Run> run, size_t index, uint32_t cached_tokens,
                        uint32_t new_tokens, const absl::StatusOr<double>& seconds) {
  const size_t column = index % run->profile.new_tokens.size();
  if (absl::IsResourceExhausted(seconds.status()) && column >= kColumnsMin) {
    run->too_many = new_tokens;
    run->spent += std::exchange(run->point_spent, 0);
    run->runs = 0;
    return go_on(std::move(run));
  }
  if (!seconds.ok()) return fail(*run, seconds.status());
  double& point = run->profile.seconds[index];
  point = run->runs == 0 ? *seconds : std::min(point, *seconds);
  run->point_spent += *seconds;
  if (++run->runs == kRuns || run->point_spent > kPointSeconds) {
    run->spent += std::exchange(run->point_spent, 0);
    run->runs = 0;
    ++run->next;
    if (!run->listener.point(run->profile.seconds.size(), cached_tokens, new_tokens, point)) {
      return fail(*run, absl::CancelledError("nobody listens"));
    }
  }
  go_on(std::move(run));
}

void Profiler::finish(Run& run) {
  const bool lacked_blocks = run.too_many != kNoLimit;
  const absl::Status saved =
      lacked_blocks ? absl::ResourceExhaustedError("blocks were lacking for longer prefills")
                    : save_profile(run.profile, path_);
  if (!saved.ok()) {
    log::warn("the profile is not saved",
              {{"profile", path_}, {"reason", std::string(saved.message())}});
  }
  set_idle();
  run.listener.done(run.profile);
}

void Profiler::fail(Run& run, absl::Status status) {
  set_idle();
  run.listener.failed(std::move(status));
}

void Profiler::set_idle() {
  std::lock_guard lock(mutex_);
  running_ = false;
}

}  // namespace ragcache::worker
