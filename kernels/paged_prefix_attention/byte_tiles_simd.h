#pragma once

// Rows of queries against tiles of bytes. Queries are rounded to bytes once, with a scale for each
// row, and so are a chunk's weights, times the values' scales; products and their sums are whole
// numbers.

#include <array>
#include <cstring>
#include <utility>

#include "kernels/half/byte_scale.h"
#include "kernels/paged_prefix_attention/chunk_simd.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention.h"
#include "kernels/simd/byte_products.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

// number ≈ scale · byte; `total` of a row's bytes.
struct RowScale {
  float scale;
  int32_t total;
};

// `queries`: [head_dim / 4][n_rows][4], from the first row on.
template <int kRows>
RAG_SIMD void score_byte_tile(const int8_t* queries, int64_t n_rows, const RowScale* rows,
                              const uint8_t* keys, int64_t head_dim, float* scores) {
  SignedBytes::Products products[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) products[r] = SignedBytes::Products::zero();
  const uint8_t* four = keys + KvLayout::kScaleBytes;
  for (int64_t d = 0; d < head_dim; d += 4, four += 4 * kColumns, queries += 4 * n_rows) {
    const SignedBytes key = SignedBytes::load(four);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) products[r].add(key, queries + 4 * r);
  }
  const Lanes scales = Lanes::load(reinterpret_cast<const float*>(keys));
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Lanes product = products[r].less(SignedBytes::kOffset * rows[r].total);
    (product * Lanes::all(rows[r].scale) * scales).store(scores + r * kChunkColumns);
  }
}

// output[:, 16 elements] = output · rescale + scale · weights · values over a chunk's tiles.
template <int kRows>
RAG_SIMD void add_byte_values(const int8_t* weights, const float* scales,
                              const uint8_t* const* values, int64_t n_tiles, int64_t head_dim,
                              const float* rescale, float* output) {
  PlainBytes::Products products[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) products[r] = PlainBytes::Products::zero();
  for (int64_t i = 0; i < n_tiles * kColumns; i += 4) {
    const PlainBytes value =
        PlainBytes::load(values[i / kColumns] + i % kColumns / 4 * (4 * head_dim));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) products[r].add(value, weights + r * kChunkColumns + i);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* to = output + r * head_dim;
    multiply_add(Lanes::all(scales[r]), products[r].less(0),
                 Lanes::all(rescale[r]) * Lanes::load(to))
        .store(to);
  }
}

// [rows - 1]
template <int... kRows>
constexpr std::array<decltype(&score_byte_tile<1>), sizeof...(kRows)> byte_tile_scorers(
    std::integer_sequence<int, kRows...>) {
  return {score_byte_tile<kRows + 1>...};
}
template <int... kRows>
constexpr std::array<decltype(&add_byte_values<1>), sizeof...(kRows)> byte_values_adders(
    std::integer_sequence<int, kRows...>) {
  return {add_byte_values<kRows + 1>...};
}
constexpr auto kScoreByteTile = byte_tile_scorers(std::make_integer_sequence<int, kByteRows>());
constexpr auto kAddByteValues = byte_values_adders(std::make_integer_sequence<int, kByteRows>());

class ByteTiles {
 public:
  static int64_t scratch_floats(int64_t rows, int64_t head_dim) {
    constexpr int64_t kFloatBytes = sizeof(float);
    return kChunkColumns + rows * (kChunkColumns + (kChunkColumns + head_dim) / kFloatBytes +
                                   (sizeof(RowScale) + sizeof(float)) / kFloatBytes);
  }

  ByteTiles(int64_t rows, int64_t head_dim, float* scratch)
      : rows_(rows),
        head_dim_(head_dim),
        value_scales_(scratch),
        scores_(value_scales_ + kChunkColumns),
        weights_(reinterpret_cast<int8_t*>(scores_ + rows * kChunkColumns)),
        queries_(weights_ + rows * kChunkColumns),
        query_scales_(reinterpret_cast<RowScale*>(queries_ + rows * head_dim)),
        weight_scales_(reinterpret_cast<float*>(query_scales_ + rows)) {}

  RAG_SIMD void set_query(int64_t row, const float* query, float factor) {
    Lanes largest = Lanes::zero();
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      largest = max(largest, magnitude(Lanes::load(query + d)));
    }
    const auto [scale, inverse] = byte_scale(max_of(largest));
    Lanes total = Lanes::zero();
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      const Lanes whole = rounded(Lanes::load(query + d) * Lanes::all(inverse));
      int8_t bytes[kLanes];
      store_bytes(whole, bytes);
      for (int64_t i = 0; i < kLanes; i += 4) {
        std::memcpy(queries_ + (d + i) * rows_ + 4 * row, bytes + i, 4);
      }
      total = total + whole;
    }
    query_scales_[row] = {scale * factor, static_cast<int32_t>(sum_of(total))};
  }

  void score(int64_t t, const uint8_t* keys) {
    for (int64_t r = 0; r < rows_; r += kByteRows) {
      kScoreByteTile[std::min<int64_t>(kByteRows, rows_ - r) - 1](
          queries_ + 4 * r, rows_, query_scales_ + r, keys, head_dim_, scores(r) + t * kColumns);
    }
  }

  float* scores(int64_t row) { return scores_ + row * kChunkColumns; }

  // Scales of columns that a tile does not hold may be anything, and would be multiplied with 0.
  void set_values(int64_t t, const AttentionPlan::Tile& tile, const uint8_t* values) {
    values_[t] = values + KvLayout::kScaleBytes;
    float* scales = value_scales_ + t * kColumns;
    std::fill(scales, scales + kColumns, 0.0f);
    std::copy_n(reinterpret_cast<const float*>(values) + tile.offset, tile.count,
                scales + tile.offset);
  }

  void weigh(int64_t n_tiles, float* maxima, float* sums, RowBases bases) {
    if (n_tiles == kChunkTiles) {
      weigh_columns<kChunkColumns>(kChunkColumns, maxima, sums, bases);
    } else {
      weigh_columns<0>(n_tiles * kColumns, maxima, sums, bases);
    }
  }

  void add_values_to(float* output, int64_t n_tiles, const float* rescale) {
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      const uint8_t* columns[kChunkTiles];
      for (int64_t t = 0; t < n_tiles; ++t) columns[t] = values_[t] + 4 * d;
      for (int64_t r = 0; r < rows_; r += kByteRows) {
        kAddByteValues[std::min<int64_t>(kByteRows, rows_ - r) - 1](
            weights_ + r * kChunkColumns, weight_scales_ + r, columns, n_tiles, head_dim_,
            rescale + r, output + r * head_dim_ + d);
      }
    }
  }

 private:
  // A loop for each step: what ends a step for a row, a maximum or a division, is long in coming.
  // kCount: the number of columns, if known.
  template <int64_t kCount>
  RAG_SIMD void weigh_columns(int64_t count, float* maxima, float* sums, RowBases bases) {
    const int64_t columns = kCount > 0 ? kCount : count;
    move_maxima(scores_, columns, rows_, maxima, bases);
    for (int64_t r = 0; r < rows_; ++r) {
      float* scores = this->scores(r);
      Lanes sum = Lanes::zero(), largest = Lanes::zero();
#pragma GCC unroll 4
      for (int64_t i = 0; i < columns; i += kLanes) {
        const Lanes weights = exp2(Lanes::load(scores + i) - Lanes::all(bases.base[r]));
        const Lanes scaled = weights * Lanes::load(value_scales_ + i);
        scaled.store(scores + i);
        sum = sum + weights;
        largest = max(largest, scaled);
      }
      sums[r] = sums[r] * bases.rescale[r] + sum_of(sum);
      weight_scales_[r] = max_of(largest);
    }
    for (int64_t r = 0; r < rows_; ++r) {
      const auto [scale, inverse] = byte_scale(weight_scales_[r]);
      weight_scales_[r] = scale;
#pragma GCC unroll 4
      for (int64_t i = 0; i < columns; i += kLanes) {
        store_bytes(rounded(Lanes::load(scores(r) + i) * Lanes::all(inverse)),
                    weights_ + r * kChunkColumns + i);
      }
    }
  }

  const int64_t rows_;
  const int64_t head_dim_;
  float* const value_scales_;     // [kChunkColumns]
  float* const scores_;           // [rows, kChunkColumns]
  int8_t* const weights_;         // [rows, kChunkColumns]
  int8_t* const queries_;         // [head_dim / 4][rows][4]
  RowScale* const query_scales_;  // [rows]
  float* const weight_scales_;    // [rows]
  const uint8_t* values_[kChunkTiles];
};

}  // namespace
}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
