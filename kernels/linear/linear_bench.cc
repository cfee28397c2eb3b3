// The packed product in every format beside Torch's, over the shapes of a model of SmolLM2-135M's
// size.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_versions.h"

namespace ragcache::kernels {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kCacheBytes = 128 << 20;

void shapes(benchmark::internal::Benchmark* bench, const std::vector<int64_t>& token_counts) {
  for (int64_t tokens : token_counts) {
    bench->Args({tokens, 576, 960});
    bench->Args({tokens, 576, 576});
    bench->Args({tokens, 576, 3072});
    bench->Args({tokens, 1536, 576});
  }
  bench->ArgNames({"tokens", "in", "out"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void many_tokens(benchmark::internal::Benchmark* bench) { shapes(bench, {8, 40, 128, 512, 2048}); }
void few_tokens(benchmark::internal::Benchmark* bench) { shapes(bench, {1, 2, 3, 4, 5, 6, 8, 40}); }

void count_flops(benchmark::State& state) {
  const double flops = 2.0 * state.range(0) * state.range(1) * state.range(2);
  state.counters["flops"] =
      benchmark::Counter(flops * state.iterations(), benchmark::Counter::kIsRate);
}

using Linear = decltype(linear);

void packed(benchmark::State& state, WeightFormat format, Linear* multiply = linear) {
  const int64_t n = state.range(0), in = state.range(1), out = state.range(2);
  ThreadPool pool(kThreads);
  // As many copies as do not fit the last level cache together: a model's weights come from memory.
  std::vector<PackedWeights> weights;
  int64_t bytes = 0;
  while (bytes < kCacheBytes) {
    weights.emplace_back(out, in, format);
    const auto row_bytes =
        static_cast<size_t>(weights.back().panel_bytes() / PackedWeights::kPanel);
    const std::vector<uint8_t> row(row_bytes, 0x31);
    for (int64_t o = 0; o < out; ++o) weights.back().set_row(o, row);
    bytes += weights.back().bytes();
  }
  at::Tensor x = at::randn({n, in});
  at::Tensor y = at::empty({n, out});
  size_t next = 0;
  for (auto _ : state) {
    multiply(x.const_data_ptr<float>(), n, weights[next++ % weights.size()],
             y.mutable_data_ptr<float>(), pool);
  }
  count_flops(state);
}
BENCHMARK_CAPTURE(packed, q4_1, WeightFormat::kQ4_1)->Apply(few_tokens)->Apply(many_tokens);
// Where the processor has more: how much that is worth.
BENCHMARK_CAPTURE(packed, q4_1_avx2, WeightFormat::kQ4_1, avx2::linear)
    ->Apply(few_tokens)
    ->Apply(many_tokens);
BENCHMARK_CAPTURE(packed, q4_0, WeightFormat::kQ4_0)->Apply(few_tokens);
BENCHMARK_CAPTURE(packed, q8_0, WeightFormat::kQ8_0)->Apply(few_tokens);
BENCHMARK_CAPTURE(packed, f16, WeightFormat::kF16)->Apply(few_tokens);
BENCHMARK_CAPTURE(packed, f32, WeightFormat::kF32)->Apply(few_tokens)->Apply(many_tokens);

void torch(benchmark::State& state) {
  const int64_t n = state.range(0), in = state.range(1), out = state.range(2);
  at::set_num_threads(kThreads);
  at::Tensor w = at::randn({out, in}).t();
  at::Tensor x = at::randn({n, in});
  at::Tensor y = at::empty({n, out});
  for (auto _ : state) at::mm_out(y, x, w);
  count_flops(state);
}
BENCHMARK(torch)->Apply(many_tokens);

}  // namespace
}  // namespace ragcache::kernels

BENCHMARK_MAIN();
