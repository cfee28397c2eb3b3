#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/retrieval/corpus.h"

namespace ragcache::retrieval {

// The corpora of the service, by name. Any thread. Create and remove block on the disk.
class Corpora {
 public:
  static constexpr size_t kCorporaMax = 1000;
  static constexpr size_t kNameBytesMax = 64;

  struct Options {
    IndexOptions index;
    ChunkOptions chunk;  // where a corpus names none
    int readers = 1;     // of the document store at the same time
    Duration shard_timeout = std::chrono::seconds(5);
  };

  // Opens or creates the document store in `folder` and all its corpora. Makes anew what was made
  // with another model or tokenizer, and has the shards follow. Errors as DocumentStore::open().
  // The embedder and the pool must outlive the corpora.
  static absl::StatusOr<std::unique_ptr<Corpora>> open(
      const std::string& folder, const Options& options, std::shared_ptr<const PromptFormat> format,
      Embedder& embedder, std::vector<std::vector<ReplicaEndpoint>> shards,
      boost::asio::thread_pool& search_pool, prometheus::Registry& registry);

  // No name is the default corpus. NOT_FOUND names the corpus.
  absl::StatusOr<std::shared_ptr<Corpus>> find(std::string_view name) const;
  std::vector<std::shared_ptr<Corpus>> list() const;  // by name
  // The one that is there, if it has these settings; ALREADY_EXISTS if it has others.
  absl::StatusOr<std::shared_ptr<Corpus>> create(const std::string& name,
                                                 const CorpusSettings& settings);
  // How many documents it had. Of the default corpus only the documents go.
  absl::StatusOr<uint64_t> remove(std::string_view name);

  DocumentStore& store() { return *shared_.store; }
  const Router& router() const { return *shared_.router; }
  const Digest& tokenizer_fingerprint() const { return tokenizer_fingerprint_; }

 private:
  Corpora() = default;
  absl::Status refresh();

  // Constant after open().
  Corpus::Shared shared_;
  Digest tokenizer_fingerprint_ = {};

  std::mutex change_mutex_;  // held by create() and remove() all the time
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Corpus>, std::less<>> corpora_;  // guarded by mutex_
};

// INVALID_ARGUMENT names the field: a corpus' name or how it cuts.
absl::Status check_corpus_name(std::string_view name);
absl::Status check_chunk_settings(const CorpusSettings& settings);

}  // namespace ragcache::retrieval
