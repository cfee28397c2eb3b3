#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/profile/prefill_profile.h"

namespace ragcache::worker {

// Measures a prefill profile point by point, keeps it in a file, and answers from there. Thread
// safe; what it tells comes on the thread that measures, or on the caller's.
class Profiler {
 public:
  using Answer = std::function<void(absl::StatusOr<double>)>;
  // Runs one prefill when it can, and answers with its seconds; RESOURCE_EXHAUSTED if too few
  // blocks are free.
  using Measure = std::function<void(uint32_t cached_tokens, uint32_t new_tokens, Answer answer)>;

  // Who asked. Exactly one of `done` and `failed` is called, last.
  struct Listener {
    // False: nobody listens any more; what was measured so far is lost.
    std::function<bool(size_t points, uint32_t cached_tokens, uint32_t new_tokens, double seconds)>
        point;
    std::function<void(const PrefillProfile& profile)> done;
    std::function<void(absl::Status)> failed;
  };

  // `max_tokens` bounds cached and new ones together.
  Profiler(std::string path, ProfileKey key, uint32_t max_tokens, Measure measure);

  // From the file unless `again`. ABORTED if a profile is being measured. One that lacked blocks
  // for long prefills goes on as it began; it is not saved, for another time there may be room.
  void profile(bool again, Listener listener);

 private:
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

  struct Run {
    PrefillProfile profile;
    size_t next = 0;               // of the points
    int runs = 0;                  // of that point
    double point_spent = 0;        // on them
    double spent = 0;              // on all points
    uint32_t too_many = kNoLimit;  // new tokens: blocks were lacking for so many
    Listener listener;
  };

  void go_on(std::shared_ptr<Run> run);
  void measured(std::shared_ptr<Run> run, size_t index, uint32_t cached_tokens, uint32_t new_tokens,
                const absl::StatusOr<double>& seconds);
  void finish(Run& run);
  void fail(Run& run, absl::Status status);
  void set_idle();

  // Constant after construction.
  const std::string path_;
  const ProfileKey key_;
  const uint32_t max_tokens_;
  const Measure measure_;

  std::mutex mutex_;  // guards what follows
  bool running_ = false;
};

}  // namespace ragcache::worker
