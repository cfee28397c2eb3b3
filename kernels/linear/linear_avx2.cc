// Blocked matrix product for a packed right-hand side.
//
// A tile of 6 tokens × 16 outputs lives in 12 registers; each step of the sum loads 16 weights
// and broadcasts 6 activations for 12 multiply-adds. Activations are not packed: the six rows of
// a tile are six streams in the first-level cache. The sum is cut into runs of kSumBlock so that
// a panel's run of weights (kSumBlock × 64 bytes) stays in the first-level cache while all row
// tiles of a task use it; a task's rows × kSumBlock activations stay in the second level.
#include "kernels/linear/linear_avx2.h"

#include <algorithm>

#include "kernels/simd/avx2.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
constexpr int kTileRows = 6;
constexpr int64_t kSumBlock = 288;
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskPanels = 12;

struct Tile {
  const float* x;  // [rows, run] with x_stride
  int64_t x_stride;
  const float* weights;  // [run, 16]
  int64_t run;
  float* y;  // [rows, outputs] with y_stride
  int64_t y_stride;
  int64_t outputs;  // of 16
  bool accumulate;
};

template <int kRows>
RAG_AVX2 void multiply_tile(const Tile& tile) {
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  const float* x[kRows];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) x[r] = tile.x + r * tile.x_stride;
  const float* weights = tile.weights;
  for (int64_t i = 0; i < tile.run; ++i) {
    const __m256 w0 = _mm256_load_ps(weights);
    const __m256 w1 = _mm256_load_ps(weights + 8);
    weights += kPanel;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 value = _mm256_broadcast_ss(x[r] + i);
      sum[r][0] = _mm256_fmadd_ps(value, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(value, w1, sum[r][1]);
    }
  }
  if (tile.outputs == kPanel) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      float* y = tile.y + r * tile.y_stride;
      if (tile.accumulate) {
        sum[r][0] = _mm256_add_ps(sum[r][0], _mm256_loadu_ps(y));
        sum[r][1] = _mm256_add_ps(sum[r][1], _mm256_loadu_ps(y + 8));
      }
      _mm256_storeu_ps(y, sum[r][0]);
      _mm256_storeu_ps(y + 8, sum[r][1]);
    }
    return;
  }
  const __m256i mask0 = first_lanes(std::min<int64_t>(tile.outputs, 8));
  const __m256i mask1 = first_lanes(std::max<int64_t>(tile.outputs - 8, 0));
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    float* y = tile.y + r * tile.y_stride;
    if (tile.accumulate) {
      sum[r][0] = _mm256_add_ps(sum[r][0], _mm256_maskload_ps(y, mask0));
      sum[r][1] = _mm256_add_ps(sum[r][1], _mm256_maskload_ps(y + 8, mask1));
    }
    _mm256_maskstore_ps(y, mask0, sum[r][0]);
    _mm256_maskstore_ps(y + 8, mask1, sum[r][1]);
  }
}

using MultiplyTile = void (*)(const Tile&);
constexpr MultiplyTile kMultiplyTile[kTileRows + 1] = {
    nullptr,          multiply_tile<1>, multiply_tile<2>, multiply_tile<3>,
    multiply_tile<4>, multiply_tile<5>, multiply_tile<6>};

}  // namespace

void linear_avx2(const float* x, int64_t n_tokens, const PackedWeights& weights, float* y,
                 ThreadPool& pool) {
  const int64_t in = weights.in();
  const int64_t out = weights.out();
  const int64_t panels = weights.panels();
  const int64_t row_tasks = (n_tokens + kTaskRows - 1) / kTaskRows;
  const int64_t panel_tasks = (panels + kTaskPanels - 1) / kTaskPanels;
  pool.run(row_tasks * panel_tasks, [&](int64_t task, int) {
    const int64_t row_begin = task % row_tasks * kTaskRows;
    const int64_t row_end = std::min(row_begin + kTaskRows, n_tokens);
    const int64_t panel_begin = task / row_tasks * kTaskPanels;
    const int64_t panel_end = std::min(panel_begin + kTaskPanels, panels);
    for (int64_t sum_begin = 0; sum_begin < in; sum_begin += kSumBlock) {
      const int64_t run = std::min(kSumBlock, in - sum_begin);
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        for (int64_t row = row_begin; row < row_end; row += kTileRows) {
          const Tile tile{.x = x + row * in + sum_begin,
                          .x_stride = in,
                          .weights = weights.panel(panel) + sum_begin * kPanel,
                          .run = run,
                          .y = y + row * out + panel * kPanel,
                          .y_stride = out,
                          .outputs = std::min(kPanel, out - panel * kPanel),
                          .accumulate = sum_begin > 0};
          kMultiplyTile[std::min<int64_t>(kTileRows, row_end - row)](tile);
        }
      }
    }
  });
}

}  // namespace ragcache::kernels
