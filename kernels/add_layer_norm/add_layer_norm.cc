#include "kernels/add_layer_norm/add_layer_norm.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 16;

// Eight values of a row. The last of a row may be fewer: masked stores are so slow on some
// processors that only those use them.
class Lanes {
 public:
  RAG_AVX2_INLINE explicit Lanes(int64_t count)
      : is_whole_(count >= 8), mask_(first_lanes(count)) {}

  RAG_AVX2_INLINE __m256 load(const float* from) const {
    return is_whole_ ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, mask_);
  }
  RAG_AVX2_INLINE void store(float* to, __m256 values) const {
    is_whole_ ? _mm256_storeu_ps(to, values) : _mm256_maskstore_ps(to, mask_, values);
  }
  RAG_AVX2_INLINE __m256 clear_rest(__m256 values) const {
    return _mm256_and_ps(_mm256_castsi256_ps(mask_), values);
  }

 private:
  bool is_whole_;
  __m256i mask_;
};

RAG_AVX2 void add_layer_norm_avx2(float* x, const float* branch, const float* bias,
                                  const LayerNorm& norm, int64_t width) {
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < width; i += 8) {
    const Lanes lanes(width - i);
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(lanes.load(x + i), lanes.load(branch + i)),
                                     lanes.load(bias + i));
    lanes.store(x + i, sum);
    sums = _mm256_add_ps(sums, sum);
  }
  const __m256 mean = _mm256_set1_ps(sum_lanes(sums) / static_cast<float>(width));
  __m256 squares = _mm256_setzero_ps();
  for (int64_t i = 0; i < width; i += 8) {
    const Lanes lanes(width - i);
    const __m256 centred = lanes.clear_rest(_mm256_sub_ps(lanes.load(x + i), mean));
    squares = _mm256_fmadd_ps(centred, centred, squares);
  }
  const float variance = sum_lanes(squares) / static_cast<float>(width);
  const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(variance + norm.epsilon));
  for (int64_t i = 0; i < width; i += 8) {
    const Lanes lanes(width - i);
    const __m256 centred = _mm256_sub_ps(lanes.load(x + i), mean);
    const __m256 weight = _mm256_mul_ps(scale, lanes.load(norm.weight + i));
    lanes.store(x + i, _mm256_fmadd_ps(centred, weight, lanes.load(norm.bias + i)));
  }
}

}  // namespace

void add_layer_norm(float* x, const float* branch, const float* bias, const LayerNorm& norm,
                    int64_t n_tokens, int64_t width, ThreadPool& pool) {
  RAG_CHECK(x != nullptr && branch != nullptr && bias != nullptr && n_tokens >= 0 && width > 0);
  const auto one_token = has_avx2() ? add_layer_norm_avx2 : add_layer_norm_reference;
  pool.run((n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) {
      one_token(x + t * width, branch + t * width, bias, norm, width);
    }
  });
}

void add_layer_norm_reference(float* x, const float* branch, const float* bias,
                              const LayerNorm& norm, int64_t width) {
  double mean = 0;
  for (int64_t i = 0; i < width; ++i) {
    x[i] += branch[i] + bias[i];
    mean += x[i];
  }
  mean /= static_cast<double>(width);
  double variance = 0;
  for (int64_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  variance /= static_cast<double>(width);
  const double scale = 1 / std::sqrt(variance + norm.epsilon);
  for (int64_t i = 0; i < width; ++i) {
    x[i] = static_cast<float>((x[i] - mean) * scale * norm.weight[i] + norm.bias[i]);
  }
}

}  // namespace ragcache::kernels
