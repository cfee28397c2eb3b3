#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// `ragcache-loadgen record`: which documents an exact search by the real embedder finds for each
// question, as a trace for `policy`.
struct RecordCommand {
  std::vector<std::string> corpora;    // files
  std::vector<std::string> questions;  // NAME=PATH: PATH's trace is written to out/NAME.jsonl
  std::string exclude;                 // question files whose name contains this
  std::string embedding_model;
  std::string model;  // whose tokens count
  std::string out;    // folder
  uint32_t top_k = 2;
  uint32_t doc_tokens = 900;
  // How many are drawn by the seed; 0: all. Documents after they were joined.
  uint64_t corpus_documents = 0;
  uint64_t max_questions = 0;
  uint64_t seed = 1;
};
absl::Status record(const RecordCommand& command);

// Adds the subcommand; when it is parsed, `chosen` becomes what runs it.
void add_record(CLI::App& cli, std::function<absl::Status()>& chosen);

}  // namespace ragcache::loadgen
