#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/index/trained_state.h"
#include "services/retrieval/router/messages.h"

namespace ragcache::retrieval {

// How each corpus is indexed: the generations of its index, kept in a file of the corpus so that
// shards need not begin anew with the router, and when there is to be another one. That is when the
// corpus has grown enough to be trained (anew), when too much of an index was removed, or when the
// options or the embedding model are others than before.
//
// Any thread. Training runs on a thread of this class.
class Generations {
 public:
  using Added = std::function<void(AddGeneration)>;

  // The store outlives this. `added` hears of each generation that is to be filled, after it is on
  // disk.
  Generations(std::string folder, const IndexOptions& options, const Digest& embedding_model,
              DocumentStore& store, Added added);
  // Ends a training under way.
  ~Generations();

  // The one or two to begin with, older first. A file that cannot be used is replaced, with a log
  // line.
  absl::StatusOr<std::vector<Generation>> open(CorpusNumber corpus);
  // With its file.
  void close(CorpusNumber corpus);

  // The corpus has changed: it may have to be trained. Returns at once.
  void settle(CorpusNumber corpus);
  // Searches use the newer generation now. Returns at once.
  void replaced(CorpusNumber corpus, uint64_t serving);
  // So much of it was removed that it should be built anew. Returns at once.
  void wasteful(CorpusNumber corpus, uint64_t generation);

  // What searches use: exact, ivf_flat, ivf_pq, ivf_sq8 or hnsw. Empty for a corpus that is not
  // open.
  std::string kind(CorpusNumber corpus) const;

 private:
  struct Corpus {
    std::vector<Generation> generations;
    std::vector<TrainedInfo> trained;  // of each; lists == 0: not trained
  };

  std::string path_of(CorpusNumber corpus) const;
  std::vector<Generation> read(CorpusNumber corpus) const;
  absl::Status write(CorpusNumber corpus, const std::vector<Generation>& generations) const;
  Generation next_generation(std::string trained) const;
  // Those below run on the pool.
  void train(CorpusNumber corpus);
  void add(CorpusNumber corpus, std::string trained);
  absl::StatusOr<std::vector<float>> read_sample(CorpusNumber corpus, uint64_t size);

  const std::string folder_;
  const IndexOptions options_;
  const Digest embedding_model_;
  DocumentStore& store_;
  const Added added_;

  mutable std::mutex mutex_;
  std::map<CorpusNumber, Corpus> corpora_;  // guarded by mutex_; changed on the pool but for open
                                            // and close

  std::stop_source stop_;
  boost::asio::thread_pool pool_{1};
};

}  // namespace ragcache::retrieval
