#include "loadgen/experiment/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <variant>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/experiment/prediction.h"
#include "loadgen/experiment/server_process.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/text_table.h"

namespace ragcache::loadgen {
namespace {

// A model is loaded, and perhaps converted, before a server is ready.
constexpr Duration kStartTimeout = std::chrono::minutes(10);
// Of the warm-up: enough to keep a server busy, few enough that none looks far ahead.
constexpr size_t kWarmUpAtOnce = 4;
// For a server that learns nothing: its memory is touched, its code has run.
constexpr size_t kWarmUpUnlearning = 8;

absl::Status first_error(const LoadResult& load) {
  RAG_RETURN_IF_ERROR(load.status);
  for (const Outcome& outcome : load.outcomes) {
    if (!outcome.error.empty()) return absl::UnavailableError(outcome.error);
  }
  return absl::OkStatus();
}

// Of a prompt of tokens no server knows which parts are documents: those count as cached that lie
// within the tokens that were.
void count_documents(const TokenPrompt& prompt, Outcome& outcome) {
  outcome.documents = prompt.documents;
  outcome.cached_documents = std::nullopt;
  if (!outcome.cached_tokens.has_value()) return;
  const size_t others = prompt.segments.size() - prompt.documents.size();
  uint32_t documents = 0;
  size_t tokens = 0;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    tokens += prompt.segments[i].size();
    if (tokens > *outcome.cached_tokens) break;
    if (i >= others) ++documents;
  }
  outcome.cached_documents = documents;
}

std::string command_of(const Contender& contender) {
  if (contender.command.empty()) return str_cat("ran already, at ", contender.url);
  std::vector<std::string> words;
  if (!contender.environment.empty()) words.push_back("env");
  for (const auto& [name, value] : contender.environment) {
    words.push_back(str_cat(name, "=", value));
  }
  words.insert(words.end(), contender.command.begin(), contender.command.end());
  return command_line(words);
}

class Experiment {
 public:
  // REQUIRES: the baseline is one of the contenders.
  Experiment(const std::vector<Contender>& contenders, const std::vector<Request>& requests,
             const ExperimentOptions& options)
      : contenders_(contenders),
        baseline_(*std::find_if(contenders.begin(), contenders.end(),
                                [&](const auto& c) { return c.name == options.baseline; })),
        warm_up_(std::span(requests).first(options.warm_up)),
        counted_(std::span(requests).subspan(options.warm_up, options.requests)),
        options_(options) {
    for (const Contender& contender : contenders) {
      result_.commands.emplace_back(contender.name, command_of(contender));
    }
  }

  absl::StatusOr<ExperimentResult> run() {
    if (absl::Status status = measure_capacity(); !status.ok()) {
      if (absl::IsInvalidArgument(status)) return status;
      return result(absl::Status(
          status.code(), str_cat("what ", baseline_.name, " sustains: ", status.message())));
    }
    const absl::Status status = run_rates();
    return result(status.ok() ? failures_ : status);
  }

 private:
  // What has run; `status` says why there is no more.
  ExperimentResult result(const absl::Status& status) const {
    ExperimentResult made = result_;
    made.status = status;
    for (ExperimentRun& run : made.runs) {
      if (run.rounds.size() < options_.rounds) run.status.Update(status);
      LoadResult load;
      load.status = run.status;
      const auto outcomes = outcomes_.find({run.rate_share, run.contender});
      if (outcomes != outcomes_.end()) load.outcomes = outcomes->second;
      run.summary = summarize(load, 0);
      // Rounds begin at the same time, as it were; rates are those of one.
      const auto rounds = static_cast<double>(std::max<size_t>(1, run.rounds.size()));
      run.summary.throughput_rps /= rounds;
      run.summary.output_tokens_per_s /= rounds;
    }
    if (options_.rounds == 0) return made;
    std::erase_if(made.runs, [](const ExperimentRun& run) { return run.rounds.empty(); });
    find_throughput_at_slo(made);
    return made;
  }

  absl::Status measure_capacity() {
    result_.capacity_rps = options_.capacity_rps;
    if (result_.capacity_rps > 0) return absl::OkStatus();
    if (options_.rounds == 0) {
      const std::vector<double>& seconds = baseline_.predicted_prefill_seconds;
      if (seconds.empty()) {
        return absl::InvalidArgumentError(
            str_cat("--rounds: is 0, but nothing predicts what ", baseline_.name, " sustains"));
      }
      result_.capacity_rps = static_cast<double>(seconds.size()) /
                             std::accumulate(seconds.begin(), seconds.end(), 0.0);
      return absl::OkStatus();
    }
    std::fprintf(stderr, "what %s sustains: %llu requests at once\n", baseline_.name.c_str(),
                 static_cast<unsigned long long>(options_.capacity_requests));
    RAG_ASSIGN_OR_RETURN(const auto server, start(baseline_));
    RAG_RETURN_IF_ERROR(warm_up(baseline_));
    const auto some = counted_.first(std::min<size_t>(options_.capacity_requests, counted_.size()));
    RAG_ASSIGN_OR_RETURN(const LoadResult load, send(baseline_, some, {}));
    RAG_RETURN_IF_ERROR(first_error(load));
    Duration last{};
    for (const Outcome& outcome : load.outcomes) last = std::max(last, outcome.end);
    result_.capacity_rps = static_cast<double>(some.size()) / to_seconds(last);
    return absl::OkStatus();
  }

  absl::Status run_rates() {
    std::vector<double> shares = options_.rate_shares;
    std::sort(shares.begin(), shares.end());
    RAG_RETURN_IF_ERROR(tell_duration(shares));
    for (const double share : shares) {
      const double rate = share * result_.capacity_rps;
      RAG_ASSIGN_OR_RETURN(const std::vector<Duration> at, options_.arrivals(rate));
      const size_t first = result_.runs.size();
      for (const Contender& contender : contenders_) {
        ExperimentRun run{.contender = contender.name, .rate = rate, .rate_share = share};
        if (!contender.predicted_prefill_seconds.empty()) {
          run.predicted_ttft_ms = queued_ttft_ms(at, scaled(contender.predicted_prefill_seconds));
        }
        result_.runs.push_back(std::move(run));
      }
      for (uint32_t round = 0; round < options_.rounds; ++round) {
        for (size_t i = 0; i < contenders_.size(); ++i) {
          const size_t turn = (i + round + first / contenders_.size()) % contenders_.size();
          std::fprintf(stderr, "rate %.3f/s (%.2f of %s), round %u of %u: %s\n", rate, share,
                       options_.baseline.c_str(), round + 1, options_.rounds,
                       contenders_[turn].name.c_str());
          if (absl::Status status = run_one(contenders_[turn], at, result_.runs[first + turn]);
              !status.ok()) {
            return absl::Status(status.code(), str_cat(contenders_[turn].name, " at ", rate,
                                                       " requests/s: ", status.message()));
          }
          if (options_.on_run) {
            RAG_RETURN_IF_ERROR(options_.on_run(result(absl::UnavailableError("it still runs"))));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // Predicted times, as if the baseline's were just what it sustains: near that rate waiting grows
  // so fast that a table which is off by a tenth would predict another load.
  std::vector<double> scaled(std::vector<double> seconds) const {
    const std::vector<double>& of_baseline = baseline_.predicted_prefill_seconds;
    if (of_baseline.empty()) return seconds;
    const double scale = static_cast<double>(of_baseline.size()) / result_.capacity_rps /
                         std::accumulate(of_baseline.begin(), of_baseline.end(), 0.0);
    for (double& each : seconds) each *= scale;
    return seconds;
  }

  // Of the load alone, before hours of it.
  absl::Status tell_duration(const std::vector<double>& shares) const {
    double seconds = 0;
    for (const double share : shares) {
      RAG_ASSIGN_OR_RETURN(const auto at, options_.arrivals(share * result_.capacity_rps));
      if (!at.empty()) seconds += to_seconds(at.back());
    }
    seconds *= static_cast<double>(contenders_.size() * options_.rounds);
    if (seconds > 60) {
      std::fprintf(stderr, "the load takes %.0f min, starts and warm-ups aside\n", seconds / 60);
    }
    return absl::OkStatus();
  }

  absl::Status run_one(const Contender& contender, const std::vector<Duration>& at,
                       ExperimentRun& run) {
    RAG_RETURN_IF_ERROR(check_interrupted());
    RAG_ASSIGN_OR_RETURN(const auto server, start(contender));
    RAG_RETURN_IF_ERROR(warm_up(contender));
    RAG_ASSIGN_OR_RETURN(LoadResult load, send(contender, counted_, at));
    for (size_t i = 0; i < load.outcomes.size(); ++i) {
      const auto* const prompt = std::get_if<TokenPrompt>(&counted_[i].prompt);
      if (prompt != nullptr && !prompt->documents.empty()) {
        count_documents(*prompt, load.outcomes[i]);
      }
    }
    const Summary round = summarize(load, 0);
    const std::optional<double> ttft_ms = round.ttft_ms.known(&Statistics::mean);
    std::fprintf(stderr, "  first token after %s ms on average, tokens cached: %s\n",
                 fixed(ttft_ms, 0).c_str(), fixed(round.token_hit_ratio(), 2).c_str());
    run.rounds.push_back(
        {.ttft_ms = ttft_ms, .whole = load.status.ok() && round.answered == round.requests});
    auto& outcomes = outcomes_[{run.rate_share, run.contender}];
    std::move(load.outcomes.begin(), load.outcomes.end(), std::back_inserter(outcomes));
    run.status.Update(load.status);
    RAG_RETURN_IF_ERROR(load.status);
    if (round.answered == round.requests) return absl::OkStatus();
    const absl::Status failed = absl::UnavailableError(
        str_cat(round.requests - round.answered, " of ", round.requests,
                " requests were not answered, the first because of ", round.first_error));
    if (round.answered == 0) return failed;
    failures_.Update(absl::UnavailableError(str_cat(contender.name, ": ", failed.message())));
    return absl::OkStatus();
  }

  absl::Status check_interrupted() const {
    return options_.interrupted ? options_.interrupted() : absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<ServerProcess>> start(const Contender& contender) const {
    if (contender.command.empty()) return nullptr;
    std::error_code ignored;  // it need not be there
    for (const std::string& file : contender.remove_first) std::filesystem::remove(file, ignored);
    RAG_ASSIGN_OR_RETURN(auto server, ServerProcess::start({.command = contender.command,
                                                            .environment = contender.environment,
                                                            .log = contender.log,
                                                            .interrupted = options_.interrupted}));
    RAG_RETURN_IF_ERROR(server->wait_ready(contender.url + contender.ready_path, kStartTimeout));
    return server;
  }

  absl::Status warm_up(const Contender& contender) const {
    const auto requests =
        contender.learns ? warm_up_ : warm_up_.first(std::min(kWarmUpUnlearning, warm_up_.size()));
    Progress progress("warm-up", requests.size());
    for (size_t done = 0; done < requests.size(); done += kWarmUpAtOnce) {
      const auto batch = requests.subspan(done, std::min(kWarmUpAtOnce, requests.size() - done));
      RAG_RETURN_IF_ERROR(check_interrupted());
      RAG_ASSIGN_OR_RETURN(const LoadResult load, send(contender, batch, {}));
      RAG_RETURN_IF_ERROR(first_error(load));
      progress.show(done + batch.size());
    }
    return absl::OkStatus();
  }

  // All at once if there are no times.
  absl::StatusOr<LoadResult> send(const Contender& contender, std::span<const Request> requests,
                                  const std::vector<Duration>& at) const {
    std::vector<Request> timed(requests.begin(), requests.end());
    // All contenders are to do equal work.
    for (Request& request : timed) request.ignore_eos = true;
    for (size_t i = 0; i < at.size(); ++i) timed[i].at = at[i];
    LoadOptions options = options_.load;
    if (at.empty()) {  // as many at once as was chosen here; the limit is of open loops
      options.max_in_flight = std::max(options.max_in_flight, static_cast<uint32_t>(timed.size()));
    }
    std::optional<Progress> progress;
    if (!at.empty()) {
      progress.emplace("requests", timed.size());
      options.on_progress = [&progress](uint64_t, uint64_t ended, uint64_t) {
        progress->show(ended);
      };
    }
    return run_load(contender.endpoint, timed, options);
  }

  void find_throughput_at_slo(ExperimentResult& result) const {
    const auto reference =
        std::find_if(result.runs.begin(), result.runs.end(),
                     [&](const ExperimentRun& run) { return run.contender == options_.baseline; });
    if (reference == result.runs.end() || !reference->whole()) return;
    result.slo_ttft_ms = options_.slo_factor * reference->summary.ttft_ms.mean;
    for (const Contender& contender : contenders_) {
      std::vector<std::pair<double, double>> points;  // rate, mean time to first token
      for (const ExperimentRun& run : result.runs) {
        if (run.contender != contender.name) continue;
        if (absl::IsCancelled(run.status)) continue;  // requests that were never sent say nothing
        const bool answers_all = run.summary.answered == run.summary.requests;
        if (answers_all && !run.whole()) continue;  // too few rounds to say
        points.emplace_back(run.rate, answers_all ? run.summary.ttft_ms.mean : HUGE_VAL);
      }
      if (points.empty()) continue;
      const double rps = highest_rate_within(*result.slo_ttft_ms, points);
      result.throughput_at_slo[contender.name] = {rps, rps == points.back().first};
    }
  }

  // Points by rate.
  static double highest_rate_within(double bound,
                                    const std::vector<std::pair<double, double>>& points) {
    double highest = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const auto [rate, value] = points[i];
      if (value <= bound) {
        highest = rate;
      } else {
        if (i > 0) {
          const auto [rate_before, value_before] = points[i - 1];
          highest =
              rate_before + (rate - rate_before) * (bound - value_before) / (value - value_before);
        }
        break;
      }
    }
    return highest;
  }

  const std::vector<Contender>& contenders_;
  const Contender& baseline_;  // one of them
  const std::span<const Request> warm_up_;
  const std::span<const Request> counted_;
  const ExperimentOptions& options_;
  ExperimentResult result_;
  absl::Status failures_;  // the first of requests that were not answered
  std::map<std::pair<double, std::string>, std::vector<Outcome>> outcomes_;
};

}  // namespace

bool ExperimentRun::whole() const {
  return status.ok() && summary.requests > 0 && summary.answered == summary.requests;
}

std::optional<double> ExperimentResult::ratio_vs(const ExperimentRun& run,
                                                 const std::string& other) const {
  const ExperimentRun* const others = find(other, run.rate_share);
  if (others == nullptr || !run.whole() || !others->whole()) return std::nullopt;
  if (run.summary.ttft_ms.mean <= 0 || others->summary.ttft_ms.mean <= 0) return std::nullopt;
  return others->summary.ttft_ms.mean / run.summary.ttft_ms.mean;
}

std::vector<double> ExperimentResult::round_ratios_vs(const ExperimentRun& run,
                                                      const std::string& other) const {
  std::vector<double> ratios;
  const ExperimentRun* const others = find(other, run.rate_share);
  if (others == nullptr) return ratios;
  const size_t rounds = std::min(run.rounds.size(), others->rounds.size());
  for (size_t i = 0; i < rounds; ++i) {
    const ExperimentRun::Round& own = run.rounds[i];
    const ExperimentRun::Round& theirs = others->rounds[i];
    if (own.whole && theirs.whole && own.ttft_ms > 0.0 && theirs.ttft_ms > 0.0) {
      ratios.push_back(*theirs.ttft_ms / *own.ttft_ms);
    }
  }
  return ratios;
}

std::optional<double> ExperimentResult::median_ratio_vs(const ExperimentRun& run,
                                                        const std::string& other) const {
  if (!ratio_vs(run, other).has_value()) return std::nullopt;
  return statistics(round_ratios_vs(run, other)).known(&Statistics::p50);
}

std::optional<double> ExperimentResult::predicted_ratio_vs(const ExperimentRun& run,
                                                           const std::string& other) const {
  const ExperimentRun* const others = find(other, run.rate_share);
  if (others == nullptr || !others->predicted_ttft_ms) return std::nullopt;
  if (!run.predicted_ttft_ms || *run.predicted_ttft_ms <= 0) return std::nullopt;
  return *others->predicted_ttft_ms / *run.predicted_ttft_ms;
}

std::optional<double> ExperimentResult::share_of_predicted(const ExperimentRun& run,
                                                           const std::string& other) const {
  const std::optional<double> measured = ratio_vs(run, other);
  const std::optional<double> predicted = predicted_ratio_vs(run, other);
  if (!measured.has_value() || !predicted.has_value() || *predicted <= 0) return std::nullopt;
  return *measured / *predicted;
}

const ExperimentRun* ExperimentResult::find(const std::string& contender, double rate_share) const {
  const auto it = std::find_if(runs.begin(), runs.end(), [&](const ExperimentRun& run) {
    return run.contender == contender && run.rate_share == rate_share;
  });
  return it == runs.end() ? nullptr : &*it;
}

absl::StatusOr<ExperimentResult> run_experiment(const std::vector<Contender>& contenders,
                                                const std::vector<Request>& requests,
                                                const ExperimentOptions& options) {
  if (requests.size() < options.warm_up + options.requests) {
    return absl::InvalidArgumentError(str_cat("--requests: the workload has ", requests.size(),
                                              " requests, fewer than --warm-up ", options.warm_up,
                                              " and --requests ", options.requests, " together"));
  }
  if (std::none_of(contenders.begin(), contenders.end(),
                   [&](const Contender& each) { return each.name == options.baseline; })) {
    return absl::InvalidArgumentError(
        str_cat("--baseline: ", options.baseline, " is none of those compared"));
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (contenders[i].name != contenders[j].name) continue;
      return absl::InvalidArgumentError(
          str_cat("--modes or --engines: has ", contenders[i].name, " twice"));
    }
  }
  std::set<double> shares;
  for (const double share : options.rate_shares) {
    if (!(share > 0 && share <= 100)) {
      return absl::InvalidArgumentError(
          str_cat("--rates: has ", share, ", must be above 0 and at most 100"));
    }
    if (!shares.insert(share).second) {
      return absl::InvalidArgumentError(str_cat("--rates: has ", share, " twice"));
    }
  }
  return Experiment(contenders, requests, options).run();
}

}  // namespace ragcache::loadgen
