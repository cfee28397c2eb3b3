#pragma once

// Rows of queries against tiles of floats or halves, with products and sums in fp32.

#include <array>
#include <utility>

#include "kernels/half/half.h"
#include "kernels/paged_prefix_attention/chunk_simd.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

template <class Element, int kRows>
RAG_SIMD void score_tile(const float* queries, const Element* keys, int64_t head_dim,
                         float* scores) {
  Lanes sum[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sum[r] = Lanes::zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    const Lanes key = Lanes::load(keys + d * kColumns);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sum[r] = multiply_add(Lanes::all(queries[r * head_dim + d]), key, sum[r]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sum[r].store(scores + r * kChunkColumns);
}

// A run of values: `count` tokens' elements from `first` on, a token's head_dim after another's.
template <class Element>
struct ValueRun {
  const Element* first;
  int32_t offset;  // of the first in its block
  int32_t count;
};

// output[:, 16 elements from `begin`] = output · rescale + scores · values over a chunk's runs.
template <class Element, int kRows>
RAG_SIMD void add_values(const float* scores, const ValueRun<Element>* runs, int64_t n_runs,
                         int64_t begin, int64_t head_dim, const float* rescale, float* output) {
  Lanes sum[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    sum[r] = Lanes::all(rescale[r]) * Lanes::load(output + r * head_dim);
  }
  for (int64_t t = 0; t < n_runs; ++t) {
    const float* weights = scores + t * kColumns + runs[t].offset;
    const Element* value = runs[t].first + begin;
    for (int32_t i = 0; i < runs[t].count; ++i) {
      const Lanes v = Lanes::load(value);
      value += head_dim;
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        sum[r] = multiply_add(Lanes::all(weights[r * kChunkColumns + i]), v, sum[r]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) sum[r].store(output + r * head_dim);
}

// [rows - 1]
template <class Element>
using ScoreTile = decltype(&score_tile<Element, 1>);
template <class Element, int... kRows>
constexpr std::array<ScoreTile<Element>, sizeof...(kRows)> score_tiles(
    std::integer_sequence<int, kRows...>) {
  return {score_tile<Element, kRows + 1>...};
}
template <class Element>
constexpr auto kScoreTile = score_tiles<Element>(std::make_integer_sequence<int, kTileRows>());

template <class Element>
using AddValues = decltype(&add_values<Element, 1>);
template <class Element, int... kRows>
constexpr std::array<AddValues<Element>, sizeof...(kRows)> values_adders(
    std::integer_sequence<int, kRows...>) {
  return {add_values<Element, kRows + 1>...};
}
template <class Element>
constexpr auto kAddValues = values_adders<Element>(std::make_integer_sequence<int, kTileRows>());

template <class Element>
class ElementTiles {
 public:
  static int64_t scratch_floats(int64_t rows, int64_t head_dim) {
    return rows * (head_dim + kChunkColumns);
  }

  ElementTiles(int64_t rows, int64_t head_dim, float* scratch)
      : rows_(rows), head_dim_(head_dim), queries_(scratch), scores_(queries_ + rows * head_dim) {}

  RAG_SIMD void set_query(int64_t row, const float* query, float factor) {
    scale_row(query, factor, head_dim_, queries_ + row * head_dim_);
  }

  // All rows' scores for tile `t` of the chunk.
  void score(int64_t t, const uint8_t* keys) {
    for (int64_t r = 0; r < rows_; r += kTileRows) {
      kScoreTile<Element>[std::min<int64_t>(kTileRows, rows_ - r) - 1](
          queries_ + r * head_dim_, reinterpret_cast<const Element*>(keys), head_dim_,
          scores(r) + t * kColumns);
    }
  }

  float* scores(int64_t row) { return scores_ + row * kChunkColumns; }

  // Values of columns that a tile does not hold are never read, as they may be anything.
  void set_values(int64_t t, const AttentionPlan::Tile& tile, const uint8_t* values) {
    runs_[t] = {reinterpret_cast<const Element*>(values) + tile.offset * head_dim_, tile.offset,
                tile.count};
  }

  // Makes weights of all rows' scores, and moves their maxima and sums on.
  RAG_SIMD void weigh(int64_t n_tiles, float* maxima, float* sums, RowBases bases) {
    const int64_t columns = n_tiles * kColumns;
    move_maxima(scores_, columns, rows_, maxima, bases);
    for (int64_t r = 0; r < rows_; ++r) {
      float* scores = this->scores(r);
      Lanes sum = Lanes::zero();
      for (int64_t i = 0; i < columns; i += kLanes) {
        const Lanes weights = exp2(Lanes::load(scores + i) - Lanes::all(bases.base[r]));
        weights.store(scores + i);
        sum = sum + weights;
      }
      sums[r] = sums[r] * bases.rescale[r] + sum_of(sum);
    }
  }

  // output [rows, head_dim] = output · rescale + weights · values
  void add_values_to(float* output, int64_t n_tiles, const float* rescale) {
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      for (int64_t r = 0; r < rows_; r += kTileRows) {
        kAddValues<Element>[std::min<int64_t>(kTileRows, rows_ - r) - 1](
            scores(r), runs_, n_tiles, d, head_dim_, rescale + r, output + r * head_dim_ + d);
      }
    }
  }

 private:
  const int64_t rows_;
  const int64_t head_dim_;
  float* const queries_;  // [rows, head_dim]
  float* const scores_;   // [rows, kChunkColumns]; then the weights
  ValueRun<Element> runs_[kChunkTiles];
};

}  // namespace
}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
