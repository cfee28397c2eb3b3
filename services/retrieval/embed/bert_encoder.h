#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "kernels/parallel/thread_pool.h"
#include "services/retrieval/embed/bert_config.h"

namespace ragcache::retrieval {

// A BERT sentence encoder (all-MiniLM-L6-v2 and its like) in fp32: mean of the last layer's tokens,
// scaled to length 1.
//
// Tokens of all sequences lie packed one after another, so that nothing is spent on padding;
// attention alone goes sequence by sequence. A sequence gets the same vector, to the bit, in every
// batch. Threads and buffers are kept from call to call: one call at a time.
class BertEncoder {
 public:
  // Reads config.json and model.safetensors. FAILED_PRECONDITION: a file is missing.
  // INVALID_ARGUMENT: damaged, or a tensor that is missing or of a wrong shape; it is named.
  // `threads` compute; 0: as many as there are cores.
  static absl::StatusOr<std::unique_ptr<BertEncoder>> load(const std::string& folder,
                                                           uint32_t threads = 0);
  ~BertEncoder();

  // Appends one vector of `dimension()` floats per sequence to `vectors`.
  // REQUIRES: each sequence has 1..max_tokens() ids below the vocabulary size.
  void encode(std::span<const std::span<const uint32_t>> sequences, std::vector<float>& vectors);

  uint32_t dimension() const { return config_.hidden_size; }
  uint32_t max_tokens() const { return config_.max_tokens; }
  const BertConfig& config() const { return config_; }
  // SHA-256 over the weights file and what else decides the vectors.
  const Digest& fingerprint() const { return fingerprint_; }

 private:
  struct Weights;
  struct Buffers;

  BertEncoder(const BertConfig& config, const Digest& fingerprint, std::unique_ptr<Weights> weights,
              int threads);

  // Constant after load().
  const BertConfig config_;
  const Digest fingerprint_;
  const std::unique_ptr<const Weights> weights_;

  const std::unique_ptr<Buffers> buffers_;
  kernels::ThreadPool pool_;
};

}  // namespace ragcache::retrieval
