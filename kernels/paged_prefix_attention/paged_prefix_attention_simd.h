#pragma once

// Flash attention (Dao et al.) over slot-indexed tiles, for AVX2 or AVX-512 (kernels/simd/lanes.h).
//
// A task holds `rows` = queries × heads of one group, which share every load of keys and values.
// It walks the context in chunks of kChunkTiles tiles:
//   scores  = Q · K   some rows × 16 tokens in registers; keys lie transposed, so a step loads 16
//                     tokens' element d and broadcasts that of the rows' queries
//   softmax           by powers of two: the queries are scaled by log2(e) as well; running
//                     maximum and sum per row; a row's old output is scaled by `rescale`
//   output += P · V   some rows × 16 elements in registers
// A tile takes 16 score columns even if it holds fewer tokens: columns outside it and tokens after
// the query get minus infinity.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/paged_prefix_attention/byte_tiles_simd.h"
#include "kernels/paged_prefix_attention/chunk_simd.h"
#include "kernels/paged_prefix_attention/element_tiles_simd.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention_versions.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {
namespace {

using Tile = AttentionPlan::Tile;
using Task = AttentionPlan::Task;

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

// Columns of a tile that hold none of the `limit` oldest context tokens get minus infinity.
void mask_tile(const Tile& tile, int64_t limit, float* scores) {
  const int64_t end = std::clamp<int64_t>(limit - tile.position, 0, tile.count) +
                      (limit > tile.position ? tile.offset : 0);
  const int64_t begin = limit > tile.position ? tile.offset : 0;
  std::fill(scores, scores + begin, kMinusInfinity);
  std::fill(scores + end, scores + kColumns, kMinusInfinity);
}

// `Tiles`: ElementTiles or ByteTiles.
template <class Tiles>
class Attend {
 public:
  Attend(const PagedPrefixAttention& args, const AttentionPlan& plan)
      : args_(args),
        kv_(static_cast<const uint8_t*>(args.kv)),
        plan_(plan),
        layout_(plan.layout()),
        head_dim_(layout_.head_dim),
        group_(plan.n_heads() / layout_.n_kv_heads),
        scale_(std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(head_dim_))) {}

  int64_t part_floats() const { return rows_floats(plan_.max_task_rows(), head_dim_); }

  int64_t thread_floats() const {
    const int64_t rows = plan_.max_task_rows();
    // The tiles', results of all parts so far and of one, the rows' bases.
    return round_to_lines(Tiles::scratch_floats(rows, head_dim_)) + 2 * part_floats() +
           round_to_lines(2 * rows);
  }

  void task(const Task& task, float* memory, float* parts) const {
    const int64_t rows = (task.query_end - task.query_begin) * group_;
    float* results = memory + round_to_lines(Tiles::scratch_floats(rows, head_dim_));
    float* base = results + 2 * part_floats();
    const RowBases bases{base, base + rows};
    Tiles tiles(rows, head_dim_, memory);
    for (int64_t r = 0; r < rows; ++r) {
      tiles.set_query(r,
                      args_.queries + (task.query_begin + r / group_) * args_.query_stride +
                          (task.kv_head * group_ + r % group_) * head_dim_,
                      scale_);
    }
    if (task.part >= 0) {
      const Rows part = rows_at(parts + task.part * part_floats(), rows, head_dim_);
      return walk(task, task.tile_begin, rows, tiles, bases, part);
    }
    const Rows total = rows_at(results, rows, head_dim_);
    const Rows part = rows_at(results + part_floats(), rows, head_dim_);
    walk(task, task.tile_begin, rows, tiles, bases, total);
    for (int32_t tile = task.tile_begin + AttentionPlan::kPartTiles; tile < task.tile_end;
         tile += AttentionPlan::kPartTiles) {
      walk(task, tile, rows, tiles, bases, part);
      add_part(part, rows, total);
    }
    finish(total, task.query_begin, task.query_end, task.kv_head);
  }

  void merge(const AttentionPlan::Merge& merge, float* parts) const {
    const int64_t rows = (merge.query_end - merge.query_begin) * group_;
    const Rows total = rows_at(parts + merge.part_begin * part_floats(), rows, head_dim_);
    for (int32_t part = merge.part_begin + 1; part < merge.part_end; ++part) {
      add_part(rows_at(parts + part * part_floats(), rows, head_dim_), rows, total);
    }
    finish(total, merge.query_begin, merge.query_end, merge.kv_head);
  }

 private:
  // Adds what the rows have from the part that comes next.
  RAG_SIMD void add_part(const Rows& part, int64_t rows, const Rows& total) const {
    for (int64_t r = 0; r < rows; ++r) {
      // A part after the query holds nothing for it.
      if (part.maximum[r] == kMinusInfinity) continue;
      const float maximum = std::max(total.maximum[r], part.maximum[r]);
      const auto factor_of = [maximum](float old) {
        return old == maximum ? 1.0f : std::exp2(old - maximum);
      };
      const float theirs = factor_of(part.maximum[r]), ours = factor_of(total.maximum[r]);
      total.maximum[r] = maximum;
      total.sum[r] = std::fma(theirs, part.sum[r], ours * total.sum[r]);
      for (int64_t d = r * head_dim_; d < (r + 1) * head_dim_; d += kLanes) {
        multiply_add(Lanes::all(theirs), Lanes::load(part.output + d),
                     Lanes::all(ours) * Lanes::load(total.output + d))
            .store(total.output + d);
      }
    }
  }

  void finish(const Rows& total, int64_t query_begin, int64_t query_end, int64_t kv_head) const {
    for (int64_t r = 0; r < (query_end - query_begin) * group_; ++r) {
      const int64_t head = kv_head * group_ + r % group_;
      scale_row(total.output + r * head_dim_, 1.0f / total.sum[r], head_dim_,
                args_.y + ((query_begin + r / group_) * plan_.n_heads() + head) * head_dim_);
    }
  }

  // The part of the task's tiles that begins with `tile`.
  void walk(const Task& task, int32_t tile, int64_t rows, Tiles& tiles, RowBases bases,
            const Rows& result) const {
    std::fill(result.output, result.output + rows * head_dim_, 0.0f);
    std::fill(result.maximum, result.maximum + rows, kMinusInfinity);
    std::fill(result.sum, result.sum + rows, 0.0f);
    const int32_t end = std::min(task.tile_end, tile + AttentionPlan::kPartTiles);
    for (; tile < end; tile += kChunkTiles) {
      const int64_t n_tiles = std::min<int64_t>(kChunkTiles, end - tile);
      chunk(task, plan_.tiles().data() + tile, n_tiles, rows, tiles, bases, result);
    }
  }

  void chunk(const Task& task, const Tile* chunk, int64_t n_tiles, int64_t rows, Tiles& tiles,
             RowBases bases, const Rows& result) const {
    for (int64_t t = 0; t < n_tiles; ++t) {
      tiles.score(t, kv_ + layout_.key_tile(chunk[t].block, args_.layer, task.kv_head));
      tiles.set_values(t, chunk[t],
                       kv_ + layout_.value_tile(chunk[t].block, args_.layer, task.kv_head));
    }
    const Tile& last = chunk[n_tiles - 1];
    bool whole = last.position + last.count <= task.first_query_limit;
    for (int64_t t = 0; t < n_tiles; ++t) whole = whole && chunk[t].count == kColumns;
    for (int64_t r = 0; r < rows && !whole; ++r) {
      const int64_t limit = task.first_query_limit + r / group_;
      for (int64_t t = 0; t < n_tiles; ++t) {
        mask_tile(chunk[t], limit, tiles.scores(r) + t * kColumns);
      }
    }
    tiles.weigh(n_tiles, result.maximum, result.sum, bases);
    tiles.add_values_to(result.output, n_tiles, bases.rescale);
  }

  const PagedPrefixAttention& args_;
  const uint8_t* const kv_;
  const AttentionPlan& plan_;
  const KvLayout& layout_;
  const int64_t head_dim_;
  const int64_t group_;
  const float scale_;
};

template <class Tiles>
void run(const PagedPrefixAttention& args, const AttentionPlan& plan, AttentionScratch& scratch,
         ThreadPool& pool) {
  const Attend<Tiles> attend(args, plan);
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
  switch (plan.layout().type) {
    case KvType::kF32:
      return run<ElementTiles<float>>(args, plan, scratch, pool);
    case KvType::kF16:
      return run<ElementTiles<Half>>(args, plan, scratch, pool);
    case KvType::kI8:
      return run<ByteTiles>(args, plan, scratch, pool);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
