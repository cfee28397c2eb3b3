#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/word_piece.h"
#include "services/retrieval/embed/bert_encoder.h"

namespace ragcache::retrieval {

struct Embeddings {
  std::vector<float> vectors;  // [number of texts, dimension]
  uint64_t tokens = 0;
};

// Owns the encoder and the one thread that runs it. Waiting queries are taken all at once as one
// batch and go before ingest, which yields after every slice of its work but gets a slice after so
// many batches in a row. Any thread may submit.
class Embedder {
 public:
  enum class Lane { kQuery, kIngest };
  using Done = absl::AnyInvocable<void(absl::StatusOr<Embeddings>)>;

  // Waiting jobs of a lane; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kJobsMax = 1024;
  // One batch of queries.
  static constexpr size_t kQueryTokensMax = 2048;
  // One slice of ingest: what a query may have to wait for.
  static constexpr size_t kIngestTokensMax = 512;
  // Batches of queries while ingest waits.
  static constexpr int kQueryBatchesInRowMax = 4;

  // As BertEncoder::load(); a vocabulary that does not fit the model is refused too.
  static absl::StatusOr<std::unique_ptr<Embedder>> load(const std::string& folder,
                                                        uint32_t threads = 0);
  ~Embedder();

  // Embeds each text, cut at the model's longest input. `done` is called once: on the embedder's
  // thread, where it must only copy and post, or on the caller's if the job is refused. A job whose
  // token asks to stop ends as CANCELLED, at the latest after the slice it is in.
  void submit(std::span<const std::string> texts, Lane lane, std::stop_token stop, Done done);
  // The same, waiting for the result. REQUIRES: not on the embedder's thread.
  absl::StatusOr<Embeddings> embed(std::span<const std::string> texts, Lane lane,
                                   std::stop_token stop);

  // Ends every job as CANCELLED, and the thread. Idempotent.
  void stop();

  uint32_t dimension() const { return encoder_->dimension(); }
  // Of the weights and the vocabulary.
  const Digest& fingerprint() const { return fingerprint_; }

 private:
  struct Job {
    std::vector<std::vector<TokenId>> sequences;
    std::stop_token stop;
    Done done;
    Embeddings result;
    size_t next = 0;  // sequences before it are embedded
  };
  using JobPtr = std::unique_ptr<Job>;

  Embedder(std::unique_ptr<BertEncoder> encoder,
           std::shared_ptr<const WordPieceTokenizer> tokenizer, const Digest& fingerprint);

  void run();
  void run_queries(std::vector<JobPtr> jobs);
  void run_slice(Job& job);

  // Constant after construction; the encoder is used by the pool's thread alone.
  const std::unique_ptr<BertEncoder> encoder_;
  const std::shared_ptr<const WordPieceTokenizer> tokenizer_;
  const Digest fingerprint_;

  std::mutex mutex_;
  std::deque<JobPtr> queries_;  // guarded by mutex_, as all below
  std::deque<JobPtr> ingest_;   // the front one stays here until its last slice
  int query_batches_in_row_ = 0;
  bool running_ = false;  // run() is on the thread or posted to it
  bool stopping_ = false;

  boost::asio::thread_pool thread_{1};
};

}  // namespace ragcache::retrieval
