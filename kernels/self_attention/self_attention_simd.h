#pragma once

// For AVX2 or AVX-512 (kernels/simd/lanes.h). A task is one head of one sequence, whose keys and
// values fit the second-level cache:
//   pack              keys as panels [head_dim][16 tokens], values as panels [tokens][16 elements]
//   scores  = Q · K   kTileRows queries × 16 tokens in registers, for all tokens of the sequence
//   softmax           of whole rows; the division by the sum waits for the output
//   output  = P · V   kTileRows queries × 16 elements in registers

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "kernels/self_attention/self_attention_versions.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

constexpr int64_t kPanel = 16;

int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// y[rows, 16] = x[rows, in] · panel[in, 16]
template <int kRows>
RAG_SIMD void multiply_tile(const float* x, int64_t x_stride, const float* panel, int64_t in,
                            float* y, int64_t y_stride) {
  Lanes sum[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sum[r] = Lanes::zero();
  const float* row[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) row[r] = x + r * x_stride;
  for (int64_t i = 0; i < in; ++i) {
    const Lanes values = Lanes::load(panel + i * kPanel);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sum[r] = multiply_add(Lanes::all(row[r][i]), values, sum[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sum[r].store(y + r * y_stride);
}

// [rows - 1]
template <int... kRows>
constexpr std::array<decltype(&multiply_tile<1>), sizeof...(kRows)> tiles_of(
    std::integer_sequence<int, kRows...>) {
  return {multiply_tile<kRows + 1>...};
}
constexpr auto kMultiplyTile = tiles_of(std::make_integer_sequence<int, kTileRows>());

// Turns a row of scores into weights 2^(scale · (score - maximum)); returns 1 / their sum.
RAG_SIMD float softmax_row(float* scores, int64_t length, float scale) {
  const int64_t columns = panels_of(length) * kPanel;
  std::fill(scores + length, scores + columns, -std::numeric_limits<float>::infinity());
  Lanes highest = Lanes::load(scores);
  for (int64_t i = kPanel; i < columns; i += kPanel) {
    highest = max(highest, Lanes::load(scores + i));
  }
  const Lanes scales = Lanes::all(scale);
  const Lanes bases = Lanes::all(max_of(highest));
  Lanes sums = Lanes::zero();
  for (int64_t i = 0; i < columns; i += kPanel) {
    const Lanes weights = exp2((Lanes::load(scores + i) - bases) * scales);
    weights.store(scores + i);
    sums = sums + weights;
  }
  return 1.0f / sum_of(sums);
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
    float* queries = values + longest_ * padded_dim_;  // [kTileRows, head_dim]
    float* scores = queries + kTileRows * head_dim;    // [kTileRows, longest]
    float* output = scores + kTileRows * longest_;     // [kTileRows, padded dimension]
    pack_keys(begin, length, head, keys);
    pack_values(begin, length, head, values);
    for (int64_t first = 0; first < length; first += kTileRows) {
      const int64_t rows = std::min<int64_t>(kTileRows, length - first);
      for (int64_t r = 0; r < rows; ++r) {
        load(begin + first + r, 0, head, queries + r * head_dim);
      }
      for (int64_t panel = 0; panel < panels_of(length); ++panel) {
        kMultiplyTile[rows - 1](queries, head_dim, keys + panel * head_dim * kPanel, head_dim,
                                scores + panel * kPanel, longest_);
      }
      float inverse[kTileRows];
      for (int64_t r = 0; r < rows; ++r) {
        inverse[r] = softmax_row(scores + r * longest_, length, scale_);
      }
      for (int64_t panel = 0; panel < panels_of(head_dim); ++panel) {
        kMultiplyTile[rows - 1](scores, longest_, values + panel * length * kPanel, length,
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

void self_attention(const SelfAttention& args, SelfAttentionScratch& scratch, ThreadPool& pool) {
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

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
