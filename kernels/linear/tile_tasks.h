#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// How a product of rows (tokens) with panels of weights is shared among threads: a task's rows
// stay in the second-level cache while it goes through its panels. Tasks are ordered by their rows,
// and each thread has its own if there are enough, for they are in its caches (ThreadPool).
inline constexpr int64_t kTaskRows = 192;
inline constexpr int64_t kLeastTaskRows = 32;
inline constexpr int64_t kTaskPanels = 6;
inline constexpr int64_t kTasksPerThread = 4;

inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One of `pieces` nearly equal runs of `count`: 17 in two are 8 and 9.
struct Run {
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};
inline Run run_of(int64_t count, int64_t pieces, int64_t piece) {
  return {count * piece / pieces, count * (piece + 1) / pieces};
}

// Calls task(rows, groups) for all rows and all groups of `group_panels` neighbouring panels, which
// stay together.
template <class Task>
void run_tile_tasks(int64_t n_rows, int64_t n_panels, int64_t group_panels, ThreadPool& pool,
                    const Task& task) {
  const int64_t groups = div_up(n_panels, group_panels);
  const int64_t threads = pool.threads();
  const int64_t row_tasks = std::min(div_up(div_up(n_rows, kTaskRows), threads) * threads,
                                     div_up(n_rows, kLeastTaskRows));
  const int64_t group_tasks =
      std::max(div_up(n_panels, kTaskPanels), std::min(groups, kTasksPerThread * threads));
  pool.run(row_tasks * group_tasks, [&](int64_t i, int) {
    task(run_of(n_rows, row_tasks, i / group_tasks), run_of(groups, group_tasks, i % group_tasks));
  });
}

// Calls tile(run) for nearly equal runs of at most `tile_rows` of the rows.
template <class Tile>
void for_tiles(Run rows, int64_t tile_rows, const Tile& tile) {
  const int64_t tiles = div_up(rows.size(), tile_rows);
  for (int64_t i = 0; i < tiles; ++i) {
    const Run run = run_of(rows.size(), tiles, i);
    tile(Run{rows.begin + run.begin, rows.begin + run.end});
  }
}

}  // namespace ragcache::kernels
