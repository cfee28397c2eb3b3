#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_layout/kv_layout.h"
#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// A ragged batch: sequence s has the queries [query_start[s], query_start[s+1]) and attends to
// the tokens whose slots are slots[context_start[s] .. context_start[s+1]), oldest first, its own
// queries' tokens last. Query i of q sees all but the q - 1 - i newest of them.
struct AttentionBatch {
  std::span<const int32_t> query_start;    // [n_sequences + 1]
  std::span<const int32_t> context_start;  // [n_sequences + 1]
  std::span<const int32_t> slots;          // [context_start.back()]
};

// How a batch is cut into tasks; made once per iteration and used by every layer. A task is one
// KV head's group of query heads × a run of queries × a run of context tiles. Contexts are walked
// in parts of kPartTiles, whose results are joined by their maxima and sums (Dao et al.,
// Flash-Decoding). Many queries walk all parts in one task; few over a long context (decode, a
// short tail after a cached prefix) have a task for each, so that every thread has work.
class AttentionPlan {
 public:
  // Counted from a context's beginning, whatever else is computed, and joined in order: a query's
  // sums are made in one order only. So short that a few queries over a long context occupy many
  // threads, so long that joining parts costs next to nothing.
  static constexpr int32_t kPartTiles = 16;

  // REQUIRES: n_heads is a multiple of layout.n_kv_heads; every sequence has a query, and at least
  // as many context tokens as queries.
  AttentionPlan(const AttentionBatch& batch, int64_t n_heads, const KvLayout& layout);

  // A run of neighbouring slots of one block.
  struct Tile {
    int32_t block;
    int32_t offset;    // in the block
    int32_t count;     // tokens
    int32_t position;  // of its first token in the sequence's context
  };
  struct Task {
    int32_t query_begin;  // token rows of the batch
    int32_t query_end;
    int32_t first_query_limit;  // context tokens that query_begin sees; one more each next query
    int32_t tile_begin;
    int32_t tile_end;
    int32_t kv_head;
    int32_t part;  // index of the scratch that the result of one part goes to; -1: all parts
  };
  // Parts [part_begin, part_end) of the same queries and KV head.
  struct Merge {
    int32_t query_begin;
    int32_t query_end;
    int32_t kv_head;
    int32_t part_begin;
    int32_t part_end;
  };

  AttentionBatch batch() const { return {query_start_, context_start_, slots_}; }
  int64_t n_heads() const { return n_heads_; }
  const KvLayout& layout() const { return layout_; }
  std::span<const Tile> tiles() const { return tiles_; }
  // Ordered by their queries.
  std::span<const Task> tasks() const { return tasks_; }
  std::span<const Merge> merges() const { return merges_; }
  int64_t max_task_rows() const { return max_task_rows_; }
  int64_t parts() const { return parts_; }

 private:
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_start_;
  std::vector<int32_t> slots_;
  int64_t n_heads_;
  KvLayout layout_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  std::vector<Merge> merges_;
  int64_t max_task_rows_ = 0;
  int64_t parts_ = 0;
};

// Buffers that calls share; grown as needed. Used by one call at a time.
struct AttentionScratch {
  struct alignas(64) Line {
    float values[16];
  };
  std::vector<Line> threads;
  std::vector<Line> parts;
};

struct PagedPrefixAttention {
  const float* queries;  // [n_tokens, query_stride]: n_heads × head_dim, after RoPE
  int64_t query_stride;
  const void* kv;  // the pool, of elements of the layout's type; the batch's own tokens are in it
  int64_t layer;
  float* y;  // [n_tokens, n_heads, head_dim]
};

// y = softmax(queries · keysᵀ / sqrt(head_dim)) · values, causal, query heads in equal groups over
// the KV heads. Products and sums are in fp32 for floats and halves. Where keys and values are
// bytes, so are the queries and the weights of each 64 tokens, rounded with a scale for each row:
// a result is off by about a hundredth of its values. A query's result depends on its context
// alone, to the last bit: not on which of its tokens are in this batch, nor on who else is.
// REQUIRES: head_dim is a multiple of 16.
void paged_prefix_attention(const PagedPrefixAttention& args, const AttentionPlan& plan,
                            AttentionScratch& scratch, ThreadPool& pool);

// The same in plain loops over the plan's batch, for one query, which is not rounded.
void paged_prefix_attention_reference(const PagedPrefixAttention& args, const AttentionPlan& plan,
                                      int64_t query);

}  // namespace ragcache::kernels
