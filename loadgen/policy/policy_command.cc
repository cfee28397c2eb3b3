#include "loadgen/policy/policy_command.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/policy/belady.h"
#include "loadgen/policy/prefixes.h"
#include "loadgen/policy/profile.h"
#include "loadgen/policy/replay.h"
#include "loadgen/report/chart.h"
#include "loadgen/report/environment.h"
#include "loadgen/report/progress.h"
#include "loadgen/report/report_file.h"
#include "loadgen/report/text_table.h"
#include "services/controller/policy/prefill_cost.h"

namespace ragcache::loadgen {
namespace {

using controller::EvictionPolicy;
using controller::PrefillCost;
using nlohmann::json;

constexpr const char* kBelady = "belady";

struct Run {
  std::string policy;
  bool history = true;
  ReplayOptions sizes;
  ReplayCounts counts;
};

absl::Status check(const PolicyCommand& command) {
  if (command.sizes.empty()) return absl::InvalidArgumentError("--sizes: names none");
  for (const double size : command.sizes) {
    if (!(size > 0) || size > 1) {
      return absl::InvalidArgumentError(
          str_cat("--sizes: is ", size, ", must be above 0 and at most 1"));
    }
  }
  const std::vector<std::string> known = controller::policy_names();
  for (const std::string& name : command.policies) {
    if (name == kBelady || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string names;
    for (const std::string& each : known) names += each + ", ";
    return absl::InvalidArgumentError(
        str_cat("--policies: has \"", name, "\", must be of ", names, kBelady));
  }
  return absl::OkStatus();
}

// Whether a policy differs when it forgets what left the cache.
bool has_history(const std::string& policy) { return policy != "lru" && policy != kBelady; }

json to_json(const Run& run) {
  return {{"policy", run.policy},
          {"history", run.history},
          {"device_tokens", run.sizes.device_tokens},
          {"host_tokens", run.sizes.host_tokens},
          {"hit_ratio", run.counts.hit_ratio()},
          {"token_hit_ratio", run.counts.token_hit_ratio()},
          {"device_token_hit_ratio", run.counts.device_token_hit_ratio()},
          {"evictions", run.counts.evictions},
          {"bytes_moved", run.counts.bytes_moved},
          {"ns_per_op", run.counts.ns_per_request}};
}

std::string label_of(const Run& run) {
  return run.history || !has_history(run.policy) ? run.policy : run.policy + ", forgetting";
}

// A row a policy, a column a size. `value` takes the figure from a run's ReplayCounts.
template <typename Value>
void print_table(const PolicyCommand& command, const std::vector<Run>& runs, const char* title,
                 int decimals, const Value& value) {
  Table table{.header = {title}};
  for (const double size : command.sizes) table.header.push_back(fixed(size, 4));
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i % command.sizes.size() == 0) table.rows.push_back({label_of(runs[i])});
    const auto figure = static_cast<double>(std::invoke(value, runs[i].counts));
    table.rows.back().push_back(fixed(figure, decimals));
  }
  std::printf("\n%s", text_table(table).c_str());
}

std::vector<ChartLine> lines_of(const PolicyCommand& command, const std::vector<Run>& runs,
                                double (ReplayCounts::*value)() const) {
  std::vector<ChartLine> lines;
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t column = i % command.sizes.size();
    if (column == 0) lines.push_back({label_of(runs[i]), {}, !runs[i].history});
    lines.back().points.emplace_back(command.sizes[column], (runs[i].counts.*value)());
  }
  return lines;
}

}  // namespace

absl::Status policy(const PolicyCommand& command) {
  RAG_RETURN_IF_ERROR(check(command));
  std::optional<PrefillCost> measured;
  if (!command.profile.empty()) {
    RAG_ASSIGN_OR_RETURN(measured, read_profile(command.profile));
  }
  const PrefillCost cost = measured.value_or(PrefillCost::unmeasured());
  const controller::PrefillSeconds prefill_seconds = [&cost](uint32_t cached, uint32_t fresh) {
    return cost.seconds(cached, fresh);
  };

  RAG_ASSIGN_OR_RETURN(const Trace trace,
                       read_trace(command.trace, {.top_k = command.top_k,
                                                  .max_requests = command.requests,
                                                  .shuffle = command.shuffle,
                                                  .seed = command.seed}));
  const Prefixes prefixes = prefixes_of(trace, command.block_tokens);
  const uint64_t working_set = prefixes.working_set_blocks * command.block_tokens;

  std::vector<Run> runs;
  for (const std::string& name : command.policies) {
    for (const bool history : {true, false}) {
      if (!history && !has_history(name)) continue;
      for (const double size : command.sizes) {
        const double total = size * static_cast<double>(working_set);
        Run run{.policy = name, .history = history};
        run.sizes.block_tokens = command.block_tokens;
        run.sizes.bytes_per_token = command.bytes_per_token;
        run.sizes.waiting = command.waiting;
        run.sizes.device_tokens = static_cast<uint64_t>(total * command.device_share);
        run.sizes.host_tokens = static_cast<uint64_t>(total) - run.sizes.device_tokens;
        runs.push_back(run);
      }
    }
  }
  Progress progress("replays", runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    std::unique_ptr<EvictionPolicy> policy;
    if (run.policy == kBelady) {
      policy = std::make_unique<BeladyPolicy>(prefixes);
    } else {
      RAG_ASSIGN_OR_RETURN(
          policy, controller::make_policy(
                      run.policy, {.remember = run.history, .prefill_seconds = prefill_seconds}));
    }
    run.counts = replay(prefixes, *policy, prefill_seconds, run.sizes);
    progress.show(i + 1);
  }

  if (command.json != "-") {
    std::printf("%s: %zu requests, %zu documents, working set %llu tokens; seed %llu%s\n",
                trace.name.c_str(), trace.requests.size(), trace.documents.size(),
                static_cast<unsigned long long>(working_set),
                static_cast<unsigned long long>(command.seed), command.shuffle ? ", shuffled" : "");
    std::printf("prefill times: %s\n",
                cost.measured() ? command.profile.c_str() : "not measured, the built-in stand-in");
    std::printf("%s", to_text(environment()).c_str());
    print_table(command, runs, "token hit ratio", 4, &ReplayCounts::token_hit_ratio);
    print_table(command, runs, "on the device", 4, &ReplayCounts::device_token_hit_ratio);
    print_table(command, runs, "document hit ratio", 4, &ReplayCounts::hit_ratio);
    print_table(command, runs, "evictions", 0, &ReplayCounts::evictions);
    print_table(command, runs, "MiB moved", 1, [](const ReplayCounts& counts) {
      return static_cast<double>(counts.bytes_moved) / (1 << 20);
    });
    print_table(command, runs, "µs of a request", 1,
                [](const ReplayCounts& counts) { return counts.ns_per_request / 1e3; });
  }

  if (!command.json.empty()) {
    json report{{"trace", trace.name},
                {"working_set_tokens", working_set},
                {"requests", trace.requests.size()},
                {"seed", command.seed},
                {"profile", cost.measured() ? command.profile : ""},
                {"environment", to_json(environment())},
                {"runs", json::array()}};
    for (const Run& run : runs) report["runs"].push_back(to_json(run));
    RAG_RETURN_IF_ERROR(write_report(command.json, report.dump(2) + "\n"));
  }
  if (!command.plots.empty()) {
    RAG_RETURN_IF_ERROR(
        write_chart(command.plots, "policy_" + trace.name,
                    {.title = "Token hit ratio, " + trace.name,
                     .x_label = "cache size, share of the working set",
                     .y_label = "token hit ratio",
                     .log_x = true,
                     .lines = lines_of(command, runs, &ReplayCounts::token_hit_ratio)}));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
