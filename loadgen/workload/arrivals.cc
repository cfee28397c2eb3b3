#include "loadgen/workload/arrivals.h"

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/sample.h"

namespace ragcache::loadgen {
namespace {

// With these, and workloads that fit into memory, times stay far from the end of Duration.
constexpr double kFactorMin = 1e-3;
constexpr double kFactorMax = 1e9;
constexpr double kShareMin = 1e-3;
constexpr double kPeriodMinS = 0.1;
constexpr double kPeriodMaxS = 86400;

absl::Status check_factor(const char* name, double value) {
  if (value >= kFactorMin && value <= kFactorMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      str_cat(name, ": is ", value, ", must be from ", kFactorMin, " to ", kFactorMax));
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::vector<Duration> poisson(size_t count, const ArrivalOptions& options) {
  Random random(options.seed);
  std::vector<Duration> times(count);
  double now_s = 0;
  for (Duration& time : times) time = duration_of(now_s += exponential(random, 1 / options.rate));
  return times;
}

// A Poisson process on a clock that stands still in the silences.
std::vector<Duration> bursts(size_t count, const ArrivalOptions& options) {
  Random random(options.seed);
  const double burst_s = options.burst_share * options.burst_period_s;
  const double silence_s = options.burst_period_s - burst_s;
  const double gap_s = options.burst_share / options.rate;
  double silent_s = 0;  // until now
  double burst_end_s = 0;
  if (uniform(random) < options.burst_share) burst_end_s = exponential(random, burst_s);
  double busy_s = 0;
  std::vector<Duration> times(count);
  for (Duration& time : times) {
    busy_s += exponential(random, gap_s);
    while (busy_s >= burst_end_s) {
      silent_s += exponential(random, silence_s);
      burst_end_s += exponential(random, burst_s);
    }
    time = duration_of(busy_s + silent_s);
  }
  return times;
}

}  // namespace

absl::StatusOr<std::vector<Duration>> arrivals(const Workload& workload,
                                               const ArrivalOptions& options) {
  if (options.process == "recorded") {
    if (!workload.has_times) {
      return absl::InvalidArgumentError(
          str_cat("arrivals: is \"recorded\", but ", workload.name, " has no times"));
    }
    RAG_RETURN_IF_ERROR(check_factor("speedup", options.speedup));
    std::vector<Duration> times;
    for (const WorkloadRequest& request : workload.requests) {
      times.push_back(duration_of(request.recorded_s / options.speedup));
    }
    return times;
  }
  RAG_RETURN_IF_ERROR(check_factor("rate", options.rate));
  if (options.process == "poisson") return poisson(workload.requests.size(), options);
  if (options.process != "bursts") {
    return absl::InvalidArgumentError(
        str_cat("arrivals: is \"", options.process, "\", must be of poisson, bursts, recorded"));
  }
  if (!(options.burst_share >= kShareMin && options.burst_share <= 1)) {
    return absl::InvalidArgumentError(
        str_cat("burst_share: is ", options.burst_share, ", must be from ", kShareMin, " to 1"));
  }
  if (!(options.burst_period_s >= kPeriodMinS && options.burst_period_s <= kPeriodMaxS)) {
    return absl::InvalidArgumentError(str_cat("burst_period_s: is ", options.burst_period_s,
                                              ", must be from ", kPeriodMinS, " to ", kPeriodMaxS));
  }
  return bursts(workload.requests.size(), options);
}

}  // namespace ragcache::loadgen
