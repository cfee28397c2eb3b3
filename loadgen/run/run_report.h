#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "loadgen/report/chart.h"
#include "loadgen/report/summary.h"
#include "loadgen/workload/skew.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {

// How well the questions of a workload were answered that knows the answers.
struct AnswerQuality {
  std::optional<double> recall;  // share of the requests whose right document was found
  std::optional<double> exact;   // share of the answers that are right word by word
  std::optional<double> f1;      // mean, of their words
};

// What a load was and what came of it.
struct RunReport {
  std::string workload;
  bool substituted = false;  // its texts were made up
  uint64_t left_out = 0;     // its requests with too long prompts
  std::string endpoint;
  std::string arrivals;
  double rate = 0;  // requests a second, in the mean
  uint64_t seed = 0;
  uint64_t warm_up = 0;
  // Of the warm-up, which the summary leaves out: a cache that it did not fill is a cold one.
  std::map<std::string, uint64_t> warm_up_errors;  // how many of each kind
  std::string first_warm_up_error;
  Summary summary;
  std::optional<Skew> skew;  // of the documents in the prompts, if the workload has them all
  AnswerQuality quality;
  Chart latencies;  // by percentile
  Chart over_time;  // first tokens
};

// Fills all that comes of the outcomes. `documents`: ids of each request, as they were known
// before; where there are none, those that the server told.
RunReport make_run_report(const Workload& workload,
                          const std::vector<std::vector<std::string>>& documents,
                          const LoadResult& result, uint64_t warm_up, uint64_t seed);

// UNAVAILABLE if a request was not answered, whether it counts or is of the warm-up.
absl::Status check_answered(const RunReport& report);

// {"workload","substituted","left_out","endpoint","arrivals","rate","seed","warm_up",
//  "warm_up_errors":{kind:n}, what a summary has,
//  "skew":{"top_share","cached_share","ceiling","uniform":{…}},"retrieval_recall",
//  "answer_exact","answer_f1","environment"}; what is not known is not there
nlohmann::ordered_json to_json(const RunReport& report);
std::string to_text(const RunReport& report);
std::string to_html(const RunReport& report);

}  // namespace ragcache::loadgen
