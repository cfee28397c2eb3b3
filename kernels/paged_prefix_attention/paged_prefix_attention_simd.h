#pragma once

// Flash attention (Dao et al.) over slot-indexed tiles, for AVX2 or AVX-512 (kernels/simd/lanes.h).
//
// A task holds `rows` = queries × heads of one group, which share every load of keys and values.
// It walks the context in chunks of kChunkTiles tiles:
//   scores  = Q · K   kTileRows × 16 tokens in registers; keys lie transposed, so a step loads 16
//                     tokens' element d and broadcasts that of kTileRows queries
//   softmax           by powers of two: the queries are scaled by log2(e) as well; running
//                     maximum and sum per row; a row's old output is scaled by `rescale`
//   output += P · V   kTileRows × 16 elements in registers
// A tile takes 16 score columns even if it holds fewer tokens: columns outside it and tokens after
// the query get minus infinity. Values of such columns are never read, as they may be anything.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "kernels/half/half.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention_versions.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

using Tile = AttentionPlan::Tile;
using Task = AttentionPlan::Task;

constexpr int64_t kLanes = 16;
constexpr int64_t kColumns = KvLayout::kBlockTokens;
constexpr int64_t kChunkTiles = 4;
constexpr int64_t kChunkColumns = kChunkTiles * kColumns;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One thread's buffers, or one part's results.
struct Rows {
  float* output;   // [rows, head_dim], not yet divided by the sum
  float* maximum;  // [rows]
  float* sum;      // [rows]
};

// Buffers are whole cache lines, so that their rows are aligned.
constexpr int64_t kLineFloats = 16;
int64_t round_to_lines(int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

int64_t rows_floats(int64_t rows, int64_t head_dim) {
  return round_to_lines(rows * (head_dim + 2));
}

Rows rows_at(float* memory, int64_t rows, int64_t head_dim) {
  return {memory, memory + rows * head_dim, memory + rows * (head_dim + 1)};
}

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

// output[:, 16 elements] = output · rescale + scores · values over the tiles of a chunk.
template <class Element, int kRows>
RAG_SIMD void add_values(const float* scores, const Element* const* values, const Tile* tiles,
                         int64_t n_tiles, int64_t head_dim, const float* rescale, float* output) {
  Lanes sum[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    sum[r] = Lanes::all(rescale[r]) * Lanes::load(output + r * head_dim);
  }
  for (int64_t t = 0; t < n_tiles; ++t) {
    const float* weights = scores + t * kColumns + tiles[t].offset;
    const Element* value = values[t] + tiles[t].offset * head_dim;
    for (int32_t i = 0; i < tiles[t].count; ++i) {
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

// Columns of a tile that hold none of the `limit` oldest context tokens get minus infinity.
void mask_tile(const Tile& tile, int64_t limit, float* scores) {
  const int64_t end = std::clamp<int64_t>(limit - tile.position, 0, tile.count) +
                      (limit > tile.position ? tile.offset : 0);
  const int64_t begin = limit > tile.position ? tile.offset : 0;
  std::fill(scores, scores + begin, kMinusInfinity);
  std::fill(scores + end, scores + kColumns, kMinusInfinity);
}

// Turns a row of scores into weights 2^(score - maximum) and moves the row's running maximum and
// sum on. Returns the factor for what the row has summed up so far.
RAG_SIMD float softmax_row(float* scores, int64_t columns, float* maximum, float* sum) {
  Lanes highest = Lanes::load(scores);
  for (int64_t i = kColumns; i < columns; i += kColumns) {
    highest = max(highest, Lanes::load(scores + i));
  }
  const float new_maximum = std::max(*maximum, max_of(highest));
  // A row that has seen nothing yet keeps minus infinity; its weights are all 0.
  const float base = new_maximum == kMinusInfinity ? 0.0f : new_maximum;
  const Lanes bases = Lanes::all(base);
  Lanes sums = Lanes::zero();
  for (int64_t i = 0; i < columns; i += kColumns) {
    const Lanes weights = exp2(Lanes::load(scores + i) - bases);
    weights.store(scores + i);
    sums = sums + weights;
  }
  // The maximum of most rows stands after the first chunks.
  const float rescale = *maximum == base ? 1.0f : std::exp2(*maximum - base);
  *sum = *sum * rescale + sum_of(sums);
  *maximum = new_maximum;
  return rescale;
}

template <class Element>
class Attend {
 public:
  Attend(const PagedPrefixAttention& args, const AttentionPlan& plan)
      : args_(args),
        kv_(static_cast<const Element*>(args.kv)),
        plan_(plan),
        layout_(plan.layout()),
        head_dim_(layout_.head_dim),
        group_(plan.n_heads() / layout_.n_kv_heads),
        scale_(std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(head_dim_))) {}

  int64_t part_floats() const { return rows_floats(plan_.max_task_rows(), head_dim_); }

  int64_t thread_floats() const {
    const int64_t rows = plan_.max_task_rows();
    // Queries, scores, output with maxima and sums, rescale factors.
    return rows * (head_dim_ + kChunkColumns) + part_floats() + round_to_lines(rows);
  }

  void task(const Task& task, float* memory, float* parts) const {
    const int64_t rows = (task.query_end - task.query_begin) * group_;
    float* queries = memory;
    float* scores = queries + rows * head_dim_;
    float* own = scores + rows * kChunkColumns;
    float* rescale = own + rows_floats(rows, head_dim_);
    const Rows result =
        rows_at(task.part < 0 ? own : parts + task.part * part_floats(), rows, head_dim_);
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = args_.queries + (task.query_begin + r / group_) * args_.query_stride +
                          (task.kv_head * group_ + r % group_) * head_dim_;
      scale_row(from, scale_, queries + r * head_dim_);
    }
    std::fill(result.output, result.output + rows * head_dim_, 0.0f);
    std::fill(result.maximum, result.maximum + rows, kMinusInfinity);
    std::fill(result.sum, result.sum + rows, 0.0f);
    for (int32_t tile = task.tile_begin; tile < task.tile_end; tile += kChunkTiles) {
      const int64_t n_tiles = std::min<int64_t>(kChunkTiles, task.tile_end - tile);
      chunk(task, plan_.tiles().data() + tile, n_tiles, rows, queries, scores, rescale, result);
    }
    if (task.part >= 0) return;
    for (int64_t r = 0; r < rows; ++r) {
      scale_row(result.output + r * head_dim_, 1.0f / result.sum[r],
                output_row(task.query_begin, task.kv_head, r));
    }
  }

  void merge(const AttentionPlan::Merge& merge, float* parts) const {
    const int64_t rows = (merge.query_end - merge.query_begin) * group_;
    const int64_t stride = part_floats();
    for (int64_t r = 0; r < rows; ++r) {
      float maximum = kMinusInfinity;
      for (int32_t part = merge.part_begin; part < merge.part_end; ++part) {
        maximum = std::max(maximum, rows_at(parts + part * stride, rows, head_dim_).maximum[r]);
      }
      float* y = output_row(merge.query_begin, merge.kv_head, r);
      std::fill(y, y + head_dim_, 0.0f);
      float sum = 0.0f;
      for (int32_t part = merge.part_begin; part < merge.part_end; ++part) {
        const Rows from = rows_at(parts + part * stride, rows, head_dim_);
        // Parts after the query hold nothing for it.
        if (from.maximum[r] == kMinusInfinity) continue;
        const float factor =
            from.maximum[r] == maximum ? 1.0f : std::exp2(from.maximum[r] - maximum);
        sum = std::fma(factor, from.sum[r], sum);
        add_row(from.output + r * head_dim_, factor, y);
      }
      scale_row(y, 1.0f / sum, y);
    }
  }

 private:
  RAG_SIMD void scale_row(const float* x, float factor, float* y) const {
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      (Lanes::load(x + d) * Lanes::all(factor)).store(y + d);
    }
  }
  RAG_SIMD void add_row(const float* x, float factor, float* y) const {
    for (int64_t d = 0; d < head_dim_; d += kLanes) {
      multiply_add(Lanes::all(factor), Lanes::load(x + d), Lanes::load(y + d)).store(y + d);
    }
  }

  float* output_row(int64_t query_begin, int64_t kv_head, int64_t row) const {
    return args_.y +
           ((query_begin + row / group_) * plan_.n_heads() + kv_head * group_ + row % group_) *
               head_dim_;
  }

  void chunk(const Task& task, const Tile* tiles, int64_t n_tiles, int64_t rows,
             const float* queries, float* scores, float* rescale, const Rows& result) const {
    const Element* values[kChunkTiles];
    for (int64_t t = 0; t < n_tiles; ++t) {
      const Element* keys = kv_ + layout_.key_tile(tiles[t].block, args_.layer, task.kv_head);
      values[t] = kv_ + layout_.value_tile(tiles[t].block, args_.layer, task.kv_head);
      for (int64_t r = 0; r < rows; r += kTileRows) {
        kScoreTile<Element>[std::min<int64_t>(kTileRows, rows - r) - 1](
            queries + r * head_dim_, keys, head_dim_, scores + r * kChunkColumns + t * kColumns);
      }
    }
    const Tile& last = tiles[n_tiles - 1];
    bool whole = last.position + last.count <= task.first_query_limit;
    for (int64_t t = 0; t < n_tiles; ++t) whole = whole && tiles[t].count == kColumns;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores + r * kChunkColumns;
      if (!whole) {
        const int64_t limit = task.first_query_limit + r / group_;
        for (int64_t t = 0; t < n_tiles; ++t) mask_tile(tiles[t], limit, row + t * kColumns);
      }
      rescale[r] = softmax_row(row, n_tiles * kColumns, &result.maximum[r], &result.sum[r]);
    }
    for (int64_t d = 0; d < head_dim_; d += 16) {
      const Element* columns[kChunkTiles];
      for (int64_t t = 0; t < n_tiles; ++t) columns[t] = values[t] + d;
      for (int64_t r = 0; r < rows; r += kTileRows) {
        kAddValues<Element>[std::min<int64_t>(kTileRows, rows - r) - 1](
            scores + r * kChunkColumns, columns, tiles, n_tiles, head_dim_, rescale + r,
            result.output + r * head_dim_ + d);
      }
    }
  }

  const PagedPrefixAttention& args_;
  const Element* const kv_;
  const AttentionPlan& plan_;
  const KvLayout& layout_;
  const int64_t head_dim_;
  const int64_t group_;
  const float scale_;
};

template <class Element>
void run(const PagedPrefixAttention& args, const AttentionPlan& plan, AttentionScratch& scratch,
         ThreadPool& pool) {
  const Attend<Element> attend(args, plan);
  const int64_t thread_floats = attend.thread_floats();
  const auto grow = [](std::vector<AttentionScratch::Line>& buffer, int64_t floats) {
    if (static_cast<int64_t>(buffer.size()) < floats / kLineFloats) {
      buffer.resize(floats / kLineFloats);
    }
    return reinterpret_cast<float*>(buffer.data());
  };
  float* threads = grow(scratch.threads, thread_floats * pool.threads());
  float* parts = grow(scratch.parts, plan.parts() * attend.part_floats());
  pool.run(static_cast<int64_t>(plan.tasks().size()), [&](int64_t task, int thread) {
    attend.task(plan.tasks()[task], threads + thread * thread_floats, parts);
  });
  pool.run(static_cast<int64_t>(plan.merges().size()),
           [&](int64_t merge, int) { attend.merge(plan.merges()[merge], parts); });
}

}  // namespace

void paged_prefix_attention(const PagedPrefixAttention& args, const AttentionPlan& plan,
                            AttentionScratch& scratch, ThreadPool& pool) {
  if (plan.layout().type == KvType::kF16) {
    run<Half>(args, plan, scratch, pool);
  } else {
    run<float>(args, plan, scratch, pool);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
