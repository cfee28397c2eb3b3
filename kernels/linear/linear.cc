#include "kernels/linear/linear.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/check.h"
#include "kernels/linear/linear_avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {
constexpr size_t kAlignment = 64;
}  // namespace

void PackedWeights::Free::operator()(float* data) const { std::free(data); }

PackedWeights::PackedWeights(int64_t out, int64_t in) : out_(out), in_(in) {
  RAG_CHECK(out > 0 && in > 0);
  const size_t bytes = static_cast<size_t>(panels() * kPanel * in) * sizeof(float);
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
  float* last = data_.get() + (panels() - 1) * in * kPanel;
  std::memset(last, 0, static_cast<size_t>(in * kPanel) * sizeof(float));
}

void PackedWeights::set_row(int64_t row, std::span<const float> values) {
  RAG_CHECK(row >= 0 && row < out_ && static_cast<int64_t>(values.size()) == in_);
  float* to = data_.get() + (row / kPanel) * in_ * kPanel + row % kPanel;
  for (int64_t i = 0; i < in_; ++i) to[i * kPanel] = values[i];
}

void PackedWeights::get_row(int64_t row, std::span<float> values) const {
  RAG_CHECK(row >= 0 && row < out_ && static_cast<int64_t>(values.size()) == in_);
  const float* from = panel(row / kPanel) + row % kPanel;
  for (int64_t i = 0; i < in_; ++i) values[i] = from[i * kPanel];
}

void linear(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
            ThreadPool& pool) {
  RAG_CHECK(x != nullptr && y != nullptr && n_tokens >= 0 && weights.out() > 0);
  if (has_avx2()) {
    linear_avx2(x, n_tokens, weights, y, pool);
  } else {
    linear_reference(x, n_tokens, weights, y);
  }
}

void linear_reference(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y) {
  constexpr int64_t kPanel = PackedWeights::kPanel;
  const int64_t in = weights.in();
  const int64_t out = weights.out();
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t panel = 0; panel < weights.panels(); ++panel) {
      const float* column = weights.panel(panel);
      float sum[kPanel] = {};
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = 0; o < kPanel; ++o) sum[o] += x[t * in + i] * column[i * kPanel + o];
      }
      const int64_t outputs = std::min(kPanel, out - panel * kPanel);
      std::copy(sum, sum + outputs, y + t * out + panel * kPanel);
    }
  }
}

}  // namespace ragcache::kernels
