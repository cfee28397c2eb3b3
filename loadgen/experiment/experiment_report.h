#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/experiment/experiment.h"

namespace ragcache::loadgen {

// What an experiment was made of, and where its report goes.
struct ExperimentReport {
  std::string title;
  std::string workload;
  std::string kind = "mode";        // what a contender is called in the JSON
  std::vector<std::string> ratios;  // contenders that the others are compared with
  std::vector<std::pair<std::string, std::string>> facts;  // sizes, seed, skew and the like

  std::string json;   // file, "-" for standard output; empty: none
  std::string plots;  // folder for PNG and SVG; empty: none
  std::string html;   // file; empty: none
};

// {"workload","capacity_rps","slo_ttft_ms","complete","facts":{…},
//  "runs":[{KIND,"rate","rate_share","ttft_ms":{"mean","p50","p90","p99"},"tpot_ms","e2e_ms",
//           "throughput_rps","token_hit_ratio","document_hit_ratio","scheduling_us":{"p50","p99"},
//           "search_not_overlapped_ms","ratio_vs":{NAME:x},"ratio_vs_median","round_ratio_vs",
//           "of_predicted","ceiling","round_ttft_ms":[…],"predicted":{"ttft_ms","ratio_vs"},
//           "errors","client_delay_ms"}],
//  "throughput_at_slo":{NAME:rps},"throughput_at_least":[NAME: it is a lower bound],
//  "commands":{NAME: how it was started},"environment":{…}}
nlohmann::ordered_json to_json(const ExperimentReport& report, const ExperimentResult& result);

// Machine, facts, how each contender was started, and the runs as a table.
std::string to_text(const ExperimentReport& report, const ExperimentResult& result);

// Runs an experiment, then prints the text and writes what the report asks for; its JSON after each
// run too, with what there is by then, for those who are killed. The experiment's own failure, if
// it had one, once that is done.
absl::Status run_and_report(const std::vector<Contender>& contenders,
                            const std::vector<Request>& requests, ExperimentOptions options,
                            const ExperimentReport& report);

}  // namespace ragcache::loadgen
