#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "loadgen/load/load.h"
#include "loadgen/report/statistics.h"

namespace ragcache::loadgen {

// What the requests of a load add up to. Latencies are of those that were answered; the first
// token's and the end's count from when the request should have been sent.
struct Summary {
  uint64_t requests = 0;  // without the warm-up
  uint64_t answered = 0;
  uint64_t resent = 0;                     // on a new connection, where the kept one had ended
  std::map<std::string, uint64_t> errors;  // how many of each kind
  std::string first_error;
  bool complete = false;        // every request was sent and has ended
  std::string stopped_because;  // if the load ended early

  double seconds = 0;         // from the first one's time to the last one's end
  double throughput_rps = 0;  // answered in that time
  double output_tokens_per_s = 0;
  Statistics ttft_ms;
  Statistics tpot_ms;  // of answers of two tokens or more: (end - first token) / (tokens - 1)
  Statistics e2e_ms;
  Statistics client_delay_ms;  // how late the generator itself sent

  // As the server told them; without samples if it did not.
  Statistics search_ms;
  Statistics queue_ms;
  Statistics scheduling_us;
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t documents = 0;
  // None if it never did.
  std::optional<uint64_t> cached_tokens;
  std::optional<uint64_t> cached_documents;

  // None where the server told no such thing, and of documents where there are none.
  std::optional<double> token_hit_ratio() const;
  std::optional<double> document_hit_ratio() const;
  // How many times faster all could be at most, if what was cached took no time.
  std::optional<double> ceiling() const;
};

// Leaves out the first `warm_up` requests.
Summary summarize(const LoadResult& result, size_t warm_up);

// {"requests","resent","complete","stopped_because","errors":{kind:n},
//  "ttft_ms":{"mean","p50","p90","p99"},
//  "tpot_ms","e2e_ms","throughput_rps","output_tokens_per_s","token_hit_ratio",
//  "document_hit_ratio","ceiling","scheduling_us":{"p50","p99"},"search_ms","queue_ms",
//  "client_delay_ms":{"p50","p99","max"}}; a ceiling without bound, what the server did not tell
//  and figures of no samples are null
nlohmann::ordered_json to_json(const Summary& summary);

// A figure of a report; null if it is not known, or not finite.
nlohmann::ordered_json or_null(std::optional<double> value);

}  // namespace ragcache::loadgen
