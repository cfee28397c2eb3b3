// A task is one head of one sequence, whose keys and values fit the second-level cache:
//   pack              keys as panels [head_dim][16 tokens], values as panels [tokens][16 elements]
//   scores  = Q · K   6 queries × 16 tokens in registers, for all tokens of the sequence
//   softmax           of whole rows; the division by the sum waits for the output
//   output  = P · V   6 queries × 16 elements in registers
#include "kernels/self_attention/self_attention_avx2.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/simd/avx2.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kTileRows = 6;

int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// y[rows, 16] = x[rows, in] · panel[in, 16]
template <int kRows>
RAG_AVX2 void multiply_tile(const float* x, int64_t x_stride, const float* panel, int64_t in,
                            float* y, int64_t y_stride) {
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  const float* row[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) row[r] = x + r * x_stride;
  for (int64_t i = 0; i < in; ++i) {
    const __m256 p0 = _mm256_loadu_ps(panel + i * kPanel);
    const __m256 p1 = _mm256_loadu_ps(panel + i * kPanel + 8);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 value = _mm256_broadcast_ss(row[r] + i);
      sum[r][0] = _mm256_fmadd_ps(value, p0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(value, p1, sum[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(y + r * y_stride, sum[r][0]);
    _mm256_storeu_ps(y + r * y_stride + 8, sum[r][1]);
  }
}

constexpr decltype(&multiply_tile<1>) kMultiplyTile[] = {
    nullptr,          multiply_tile<1>, multiply_tile<2>, multiply_tile<3>,
    multiply_tile<4>, multiply_tile<5>, multiply_tile<6>};

// Turns a row of scores into weights 2^(scale · (score - maximum)); returns 1 / their sum.
RAG_AVX2 float softmax_row(float* scores, int64_t length, float scale) {
  const int64_t columns = panels_of(length) * kPanel;
  std::fill(scores + length, scores + columns, -std::numeric_limits<float>::infinity());
  __m256 highest = _mm256_loadu_ps(scores);
  for (int64_t i = 8; i < columns; i += 8) {
    highest = _mm256_max_ps(highest, _mm256_loadu_ps(scores + i));
  }
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256 bases = _mm256_set1_ps(max_lanes(highest));
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < columns; i += 8) {
    const __m256 score = _mm256_sub_ps(_mm256_loadu_ps(scores + i), bases);
    const __m256 weight = exp2_lanes(_mm256_mul_ps(score, scales));
    _mm256_storeu_ps(scores + i, weight);
    sums = _mm256_add_ps(sums, weight);
  }
  return 1.0f / sum_lanes(sums);
}

class Attend {
 public:
  Attend(const SelfAttention& args, int64_t longest)
      : args_(args),
        longest_(panels_of(longest) * kPanel),
        padded_dim_(panels_of(args.head_dim) * kPanel),
        width_(args.n_heads * args.head_dim),
        scale_(std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(args.head_dim))) {}

  int64_t thread_floats() const {
    return longest_ * (args_.head_dim + padded_dim_) +
           kTileRows * (args_.head_dim + longest_ + padded_dim_);
  }

  void task(int64_t begin, int64_t end, int64_t head, float* memory) const {
    const int64_t length = end - begin;
    const int64_t head_dim = args_.head_dim;
    float* keys = memory;                              // [panels][head_dim][16]
    float* values = keys + longest_ * head_dim;        // [panels][length][16]
    float* queries = values + longest_ * padded_dim_;  // [6, head_dim]
    float* scores = queries + kTileRows * head_dim;    // [6, longest]
    float* output = scores + kTileRows * longest_;     // [6, padded dimension]
    pack_keys(begin, length, head, keys);
    pack_values(begin, length, head, values);
    for (int64_t first = 0; first < length; first += kTileRows) {
      const int64_t rows = std::min(kTileRows, length - first);
      for (int64_t r = 0; r < rows; ++r) {
        load(begin + first + r, 0, head, queries + r * head_dim);
      }
      for (int64_t panel = 0; panel < panels_of(length); ++panel) {
        kMultiplyTile[rows](queries, head_dim, keys + panel * head_dim * kPanel, head_dim,
                            scores + panel * kPanel, longest_);
      }
      float inverse[kTileRows];
      for (int64_t r = 0; r < rows; ++r) {
        inverse[r] = softmax_row(scores + r * longest_, length, scale_);
      }
      for (int64_t panel = 0; panel < panels_of(head_dim); ++panel) {
        kMultiplyTile[rows](scores, longest_, values + panel * length * kPanel, length,
                            output + panel * kPanel, padded_dim_);
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* y = args_.y + (begin + first + r) * width_ + head * head_dim;
        for (int64_t d = 0; d < head_dim; ++d) y[d] = output[r * padded_dim_ + d] * inverse[r];
      }
    }
  }

 private:
  // A token's query (0), key (1) or value (2) of a head.
  void load(int64_t token, int64_t part, int64_t head, float* to) const {
    const int64_t first = head * args_.head_dim;
    const float* from = args_.query_key_value + (token * 3 + part) * width_ + first;
    const float* bias = args_.bias + part * width_ + first;
    for (int64_t d = 0; d < args_.head_dim; ++d) to[d] = from[d] + bias[d];
  }

  // Columns beyond the last token are zero; softmax_row() takes their scores out.
  void pack_keys(int64_t begin, int64_t length, int64_t head, float* keys) const {
    const int64_t first = head * args_.head_dim;
    const float* bias = args_.bias + width_ + first;
    for (int64_t panel = 0; panel < panels_of(length); ++panel) {
      float* to = keys + panel * args_.head_dim * kPanel;
      const int64_t columns = std::min(kPanel, length - panel * kPanel);
      if (columns < kPanel) std::fill(to, to + args_.head_dim * kPanel, 0.0f);
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t token = begin + panel * kPanel + column;
        const float* from = args_.query_key_value + (token * 3 + 1) * width_ + first;
        for (int64_t d = 0; d < args_.head_dim; ++d) to[d * kPanel + column] = from[d] + bias[d];
      }
    }
  }

  void pack_values(int64_t begin, int64_t length, int64_t head, float* values) const {
    const int64_t first = head * args_.head_dim;
    for (int64_t panel = 0; panel < panels_of(args_.head_dim); ++panel) {
      const int64_t elements = std::min(kPanel, args_.head_dim - panel * kPanel);
      const float* bias = args_.bias + 2 * width_ + first + panel * kPanel;
      float* to = values + panel * length * kPanel;
      for (int64_t token = 0; token < length; ++token, to += kPanel) {
        const float* from =
            args_.query_key_value + ((begin + token) * 3 + 2) * width_ + first + panel * kPanel;
        for (int64_t d = 0; d < elements; ++d) to[d] = from[d] + bias[d];
        std::fill(to + elements, to + kPanel, 0.0f);
      }
    }
  }

  const SelfAttention& args_;
  const int64_t longest_;
  const int64_t padded_dim_;
  const int64_t width_;
  const float scale_;  // of a score as an exponent of 2
};

}  // namespace

void self_attention_avx2(const SelfAttention& args, SelfAttentionScratch& scratch,
                         ThreadPool& pool) {
  const auto n_sequences = static_cast<int64_t>(args.begins.size()) - 1;
  int64_t longest = 0;
  for (int64_t i = 0; i < n_sequences; ++i) {
    longest = std::max(longest, args.begins[i + 1] - args.begins[i]);
  }
  const Attend attend(args, longest);
  const int64_t thread_floats = attend.thread_floats();
  const auto wanted = static_cast<size_t>(thread_floats * pool.threads());
  if (scratch.floats.size() < wanted) scratch.floats.resize(wanted);
  pool.run(n_sequences * args.n_heads, [&](int64_t task, int thread) {
    const int64_t sequence = task / args.n_heads;
    attend.task(args.begins[sequence], args.begins[sequence + 1], task % args.n_heads,
                scratch.floats.data() + thread * thread_floats);
  });
}

}  // namespace ragcache::kernels
