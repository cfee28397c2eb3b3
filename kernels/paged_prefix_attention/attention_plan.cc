#include <algorithm>

#include "common/check.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

namespace ragcache::kernels {
namespace {

constexpr int32_t kBlockTokens = KvLayout::kBlockTokens;
// Rows (queries × heads of the group) of one task: enough that a tile of keys is used many times
// while it is in the first-level cache, few enough that the scores stay in the second.
constexpr int64_t kTaskRows = 48;
// Tasks of a sequence that occupy any number of threads that there may be.
constexpr int64_t kManyTasks = 64;

int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

AttentionPlan::AttentionPlan(const AttentionBatch& batch, int64_t n_heads, const KvLayout& layout)
    : query_start_(batch.query_start.begin(), batch.query_start.end()),
      context_start_(batch.context_start.begin(), batch.context_start.end()),
      slots_(batch.slots.begin(), batch.slots.end()),
      n_heads_(n_heads),
      layout_(layout) {
  RAG_CHECK(!batch.query_start.empty() && batch.query_start.size() == batch.context_start.size());
  RAG_CHECK(layout.n_kv_heads > 0 && n_heads % layout.n_kv_heads == 0);
  RAG_CHECK(batch.context_start.back() <= static_cast<int64_t>(batch.slots.size()));
  const int64_t group = n_heads / layout.n_kv_heads;
  const int64_t sequences = static_cast<int64_t>(batch.query_start.size()) - 1;
  const int64_t max_queries = std::max<int64_t>(1, kTaskRows / group);

  for (int64_t s = 0; s < sequences; ++s) {
    const int32_t context_begin = batch.context_start[s];
    const int32_t context = batch.context_start[s + 1] - context_begin;
    const int32_t queries = batch.query_start[s + 1] - batch.query_start[s];
    RAG_CHECK(queries > 0 && context >= queries);
    const int32_t first_tile = static_cast<int32_t>(tiles_.size());
    for (int32_t i = 0; i < context;) {
      const int32_t slot = batch.slots[context_begin + i];
      RAG_CHECK(slot >= 0);
      Tile tile{slot / kBlockTokens, slot % kBlockTokens, 1, i};
      while (i + tile.count < context && tile.offset + tile.count < kBlockTokens &&
             batch.slots[context_begin + i + tile.count] == slot + tile.count) {
        ++tile.count;
      }
      i += tile.count;
      tiles_.push_back(tile);
    }
    const int64_t n_pieces = div_up(queries, max_queries);
    for (int64_t piece = 0; piece < n_pieces; ++piece) {
      // Pieces of nearly equal length: 17 queries of at most 16 are 9 and 8.
      const int32_t begin = static_cast<int32_t>(queries * piece / n_pieces);
      const int32_t end = static_cast<int32_t>(queries * (piece + 1) / n_pieces);
      const int32_t last_limit = context - queries + end;
      int32_t tile_end = static_cast<int32_t>(tiles_.size());
      while (tiles_[tile_end - 1].position >= last_limit) --tile_end;
      const int64_t n_parts = n_pieces * layout.n_kv_heads >= kManyTasks
                                  ? 1
                                  : div_up(tile_end - first_tile, kPartTiles);
      Task task{.query_begin = batch.query_start[s] + begin,
                .query_end = batch.query_start[s] + end,
                .first_query_limit = context - queries + begin + 1,
                .part = -1};
      max_task_rows_ = std::max(max_task_rows_, (end - begin) * group);
      for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
        task.kv_head = head;
        if (n_parts > 1) {
          merges_.push_back({task.query_begin, task.query_end, head, static_cast<int32_t>(parts_),
                             static_cast<int32_t>(parts_ + n_parts)});
        }
        for (int64_t part = 0; part < n_parts; ++part) {
          task.tile_begin = first_tile + static_cast<int32_t>(part) * kPartTiles;
          task.tile_end = tile_end;
          if (n_parts > 1) {
            task.tile_end = std::min(tile_end, task.tile_begin + kPartTiles);
            task.part = static_cast<int32_t>(parts_++);
          }
          tasks_.push_back(task);
        }
      }
    }
  }
}

}  // namespace ragcache::kernels
