#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// Weights of a linear layer [out, in] in the order the kernel reads them: panels of 16 outputs,
// each panel [in][16], the last one filled up with zeros. Movable; reading is thread safe.
class PackedWeights {
 public:
  static constexpr int64_t kPanel = 16;

  PackedWeights() = default;
  PackedWeights(int64_t out, int64_t in);

  // Writes output row `row` from `values` [in]. Rows may be written by different threads.
  void set_row(int64_t row, std::span<const float> values);
  // Reads output row `row` back: an embedding table tied to the head needs no second copy.
  void get_row(int64_t row, std::span<float> values) const;

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t panels() const { return (out_ + kPanel - 1) / kPanel; }
  const float* panel(int64_t index) const { return data_.get() + index * in_ * kPanel; }

 private:
  struct Free {
    void operator()(float* data) const;
  };

  int64_t out_ = 0;
  int64_t in_ = 0;
  std::unique_ptr<float[], Free> data_;
};

// y = x · weightsᵀ. The sum over `in` runs in the same order whatever n_tokens is, so a token's
// result does not depend on its batch.
// REQUIRES: x and y do not overlap.
void linear(const float* x,                // [n_tokens, weights.in]
            int64_t n_tokens,              //
            const PackedWeights& weights,  //
            float* y,                      // [n_tokens, weights.out]
            ThreadPool& pool);

// The same in plain loops.
void linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y);

}  // namespace ragcache::kernels
