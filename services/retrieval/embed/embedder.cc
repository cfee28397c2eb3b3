#include "services/retrieval/embed/embedder.h"

#include <boost/asio/post.hpp>
#include <future>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"

namespace ragcache::retrieval {

absl::StatusOr<std::unique_ptr<Embedder>> Embedder::load(const std::string& folder,
                                                         uint32_t threads) {
  RAG_ASSIGN_OR_RETURN(std::unique_ptr<BertEncoder> encoder, BertEncoder::load(folder, threads));
  const std::string path = folder + "/vocab.txt";
  auto vocabulary = MappedFile::open(path);
  if (!vocabulary.ok()) return absl::FailedPreconditionError(vocabulary.status().message());
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<const WordPieceTokenizer> tokenizer,
                       WordPieceTokenizer::load(path));
  if (tokenizer->vocabulary_size() > encoder->config().vocabulary_size) {
    return absl::InvalidArgumentError(str_cat(path, " has ", tokenizer->vocabulary_size(),
                                              " tokens, the model ",
                                              encoder->config().vocabulary_size));
  }
  const Digest fingerprint =
      Sha256().update(encoder->fingerprint()).update(vocabulary->bytes()).finish();
  return std::unique_ptr<Embedder>(
      new Embedder(std::move(encoder), std::move(tokenizer), fingerprint));
}

Embedder::Embedder(std::unique_ptr<BertEncoder> encoder,
                   std::shared_ptr<const WordPieceTokenizer> tokenizer, const Digest& fingerprint)
    : encoder_(std::move(encoder)), tokenizer_(std::move(tokenizer)), fingerprint_(fingerprint) {}

Embedder::~Embedder() { stop(); }

void Embedder::submit(std::span<const std::string> texts, Lane lane, std::stop_token stop,
                      Done done) {
  auto job = std::make_unique<Job>();
  job->stop = std::move(stop);
  job->done = std::move(done);
  job->sequences.reserve(texts.size());
  for (const std::string& text : texts) {
    job->sequences.push_back(tokenizer_->encode(text, encoder_->max_tokens()));
    job->result.tokens += job->sequences.back().size();
  }
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    std::deque<JobPtr>& queue = lane == Lane::kQuery ? queries_ : ingest_;
    if (stopping_) {
      refused = absl::CancelledError("the embedder is stopping");
    } else if (queue.size() >= kJobsMax) {
      refused = absl::ResourceExhaustedError(
          str_cat("too many texts wait to be embedded: at most ", kJobsMax, " jobs"));
    } else {
      queue.push_back(std::move(job));
      if (!running_) {
        running_ = true;
        boost::asio::post(thread_, [this] { run(); });
      }
    }
  }
  if (!refused.ok()) job->done(refused);
}

absl::StatusOr<Embeddings> Embedder::embed(std::span<const std::string> texts, Lane lane,
                                           std::stop_token stop) {
  std::promise<absl::StatusOr<Embeddings>> promise;
  std::future<absl::StatusOr<Embeddings>> future = promise.get_future();
  submit(texts, lane, std::move(stop),
         [&promise](absl::StatusOr<Embeddings> result) { promise.set_value(std::move(result)); });
  return future.get();
}

void Embedder::run() {
  while (true) {
    std::vector<JobPtr> queries;
    JobPtr ended;
    Job* slice_of = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const bool is_ingest_due =
          !stopping_ && !ingest_.empty() && query_batches_in_row_ >= kQueryBatchesInRowMax;
      size_t tokens = 0;
      while (!queries_.empty() && !is_ingest_due) {
        tokens += queries_.front()->result.tokens;
        if (!stopping_ && !queries.empty() && tokens > kQueryTokensMax) break;
        queries.push_back(std::move(queries_.front()));
        queries_.pop_front();
      }
      query_batches_in_row_ = queries.empty() ? 0 : query_batches_in_row_ + 1;
      if (queries.empty() && !ingest_.empty()) {
        Job& job = *ingest_.front();
        if (stopping_ || job.stop.stop_requested() || job.next == job.sequences.size()) {
          ended = std::move(ingest_.front());
          ingest_.pop_front();
        } else {
          slice_of = &job;
        }
      }
      if (queries.empty() && ended == nullptr && slice_of == nullptr) {
        running_ = false;
        return;
      }
    }
    if (!queries.empty()) run_queries(std::move(queries));
    // Only this thread takes jobs away, so the front one is still there.
    if (slice_of != nullptr) run_slice(*slice_of);
    if (ended != nullptr) {
      if (ended->next == ended->sequences.size()) {
        ended->done(std::move(ended->result));
      } else {
        ended->done(absl::CancelledError("embedding was cancelled"));
      }
    }
  }
}

void Embedder::run_queries(std::vector<JobPtr> jobs) {
  bool stopping;
  {
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
  }
  std::vector<std::span<const TokenId>> sequences;
  for (JobPtr& job : jobs) {
    if (stopping || job->stop.stop_requested()) {
      job->done(absl::CancelledError("embedding was cancelled"));
      job = nullptr;
      continue;
    }
    sequences.insert(sequences.end(), job->sequences.begin(), job->sequences.end());
  }
  std::vector<float> vectors;
  encoder_->encode(sequences, vectors);
  auto begin = vectors.begin();
  for (JobPtr& job : jobs) {
    if (job == nullptr) continue;
    const auto end = begin + static_cast<ptrdiff_t>(job->sequences.size() * dimension());
    job->result.vectors.assign(begin, end);
    begin = end;
    job->done(std::move(job->result));
  }
}

void Embedder::run_slice(Job& job) {
  std::vector<std::span<const TokenId>> sequences;
  size_t tokens = 0;
  while (job.next < job.sequences.size()) {
    const std::vector<TokenId>& sequence = job.sequences[job.next];
    if (tokens > 0 && tokens + sequence.size() > kIngestTokensMax) break;
    tokens += sequence.size();
    sequences.push_back(sequence);
    ++job.next;
  }
  encoder_->encode(sequences, job.result.vectors);
}

void Embedder::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

}  // namespace ragcache::retrieval
