#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/token_counter.h"

namespace ragcache::loadgen {

struct CorpusDocument {
  std::string id;
  std::string title;
  std::string text;
  uint32_t tokens = 0;  // once they were counted: of its segment of a prompt
};

struct CorpusOptions {
  std::vector<std::string> paths;  // of what read_corpus takes
  uint32_t doc_tokens = 0;         // join neighbours of one title up to so many; 0: leave them
  uint32_t min_doc_tokens = 0;     // leave out documents that are shorter then
  uint64_t documents = 0;          // draw so many of the rest; 0: all
  // While passages are counted.
  std::function<void(uint64_t done, uint64_t all)> on_progress;
};

// Documents of a file, in its order: {"id","title","text"} a line, SQuAD's JSON (its paragraphs),
// or one object that maps titles to {"extract"} (leads of Wikipedia articles); .gz too.
// INVALID_ARGUMENT names file, line and field.
absl::StatusOr<std::vector<CorpusDocument>> read_corpus(const std::string& path);

// Neighbours of one title become one document, under the first one's id, as long as that has at
// most `max_tokens`. `places`: where each of them went.
std::vector<CorpusDocument> join_neighbours(std::vector<CorpusDocument> documents,
                                            uint32_t max_tokens,
                                            std::vector<uint32_t>* places = nullptr);

// Joins, draws and counts passages as the options say. `ids`: of the document that each passage
// went into, whether or not that was drawn.
std::vector<CorpusDocument> make_corpus(std::vector<CorpusDocument> passages,
                                        const CorpusOptions& options, uint64_t seed,
                                        const TokenCounter& count_tokens,
                                        std::vector<std::string>* ids = nullptr);

// The same of the options' files.
absl::StatusOr<std::vector<CorpusDocument>> read_corpora(const CorpusOptions& options,
                                                         uint64_t seed,
                                                         const TokenCounter& count_tokens);

}  // namespace ragcache::loadgen
