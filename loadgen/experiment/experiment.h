#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/load/load.h"
#include "loadgen/report/summary.h"

namespace ragcache::loadgen {

// One of the servers that an experiment compares.
struct Contender {
  std::string name;
  // Started before each of its runs and ended afterwards; empty: it runs already, at `url`.
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> remove_first;  // files that must not be there when it starts
  std::string log;
  std::string url;
  std::string ready_path;  // answers 200 once it serves
  EndpointOptions endpoint;
  // Whether what it served before makes it faster. If not, it is not warmed up.
  bool learns = true;
  // Of each counted request, as a model of it has them; empty: there is none. They count by their
  // ratio to the baseline's, where that has any.
  std::vector<double> predicted_prefill_seconds;
};

struct ExperimentResult;

struct ExperimentOptions {
  uint64_t warm_up = 300;   // requests that are not counted, sent a few at a time
  uint64_t requests = 600;  // counted ones
  std::vector<double> rate_shares{0.3, 0.6, 0.9};  // of what the baseline sustains
  std::string baseline;                            // a contender's name
  double capacity_rps = 0;                         // of the baseline; 0: it is measured
  uint64_t capacity_requests = 24;                 // sent at once to measure it
  uint32_t rounds = 3;                             // 0: nothing is run, only predicted
  // When the counted requests are sent, at that many a second.
  std::function<absl::StatusOr<std::vector<Duration>>(double rate)> arrivals;
  // Its objective is this many times the baseline's mean time to first token at the lowest rate,
  // as RAGCache §7.1 and vLLM's paper have it.
  double slo_factor = 5;
  LoadOptions load;
  // Not OK once it is to end, with what it has; none: never.
  std::function<absl::Status()> interrupted;
  // Called after each run with what there is; the experiment ends if it fails. May be none.
  std::function<absl::Status(const ExperimentResult&)> on_run;
};

// What one contender did at one rate, in all rounds together.
struct ExperimentRun {
  std::string contender;
  double rate = 0;  // requests a second
  double rate_share = 0;
  Summary summary;
  struct Round {
    std::optional<double> ttft_ms;  // mean of those that were answered
    bool whole = false;             // every request was
  };
  std::vector<Round> rounds;  // that were loaded, from the first
  absl::Status status;        // why not all of its rounds ran to their end
  std::optional<double> predicted_ttft_ms;

  // Every request of every round was answered. If not, the mean of those that were says nothing
  // beside another's: the slowest may be missing.
  bool whole() const;
};

struct ExperimentResult {
  double capacity_rps = 0;            // 0 if measuring it failed
  std::optional<double> slo_ttft_ms;  // none if the baseline's run at the lowest rate is not whole
  std::vector<ExperimentRun> runs;    // by rate, then as the contenders stand
  // The highest rate at which all is answered and the mean time to first token meets the objective,
  // between the rates that ran by straight lines. Zero if none does.
  struct Throughput {
    double rps = 0;
    bool at_least = false;  // it is the highest that ran
  };
  std::map<std::string, Throughput> throughput_at_slo;
  // How each contender was started, as one would type it.
  std::vector<std::pair<std::string, std::string>> commands;
  absl::Status status;  // why not all of it ran

  // How many times sooner than `other` the run's contender has its first token at that rate; none
  // if either run is not whole.
  std::optional<double> ratio_vs(const ExperimentRun& run, const std::string& other) const;
  // The same of each round in which both answered every request.
  std::vector<double> round_ratios_vs(const ExperimentRun& run, const std::string& other) const;
  // The median of these; none if either run is not whole.
  std::optional<double> median_ratio_vs(const ExperimentRun& run, const std::string& other) const;
  // What the models have for that ratio, and what share of that was measured.
  std::optional<double> predicted_ratio_vs(const ExperimentRun& run,
                                           const std::string& other) const;
  std::optional<double> share_of_predicted(const ExperimentRun& run,
                                           const std::string& other) const;
  // Null if it is not there.
  const ExperimentRun* find(const std::string& contender, double rate_share) const;
};

// Sends the same requests (the warm-up's first, then the counted ones) at the same times to each
// contender: a rate after the other, the lowest first, and at each rate the contenders in an order
// that turns with the rounds. Every run begins with a server that was just started, unless it is
// not ours to start, and warmed up. A contender that fails ends the experiment, with what there
// is; requests that fail are told in its status. INVALID_ARGUMENT names what cannot be.
absl::StatusOr<ExperimentResult> run_experiment(const std::vector<Contender>& contenders,
                                                const std::vector<Request>& requests,
                                                const ExperimentOptions& options);

}  // namespace ragcache::loadgen
