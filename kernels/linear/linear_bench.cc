// The packed product beside Torch's, over the shapes of a model of SmolLM2-135M's size.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "kernels/linear/linear.h"

namespace ragcache::kernels {
namespace {

constexpr int kThreads = 2;

void shapes(benchmark::internal::Benchmark* bench) {
  for (int64_t tokens : {1, 8, 40, 128, 512, 2048}) {
    bench->Args({tokens, 576, 960});
    bench->Args({tokens, 576, 576});
    bench->Args({tokens, 576, 3072});
    bench->Args({tokens, 1536, 576});
  }
  bench->ArgNames({"tokens", "in", "out"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void count_flops(benchmark::State& state) {
  const double flops = 2.0 * state.range(0) * state.range(1) * state.range(2);
  state.counters["flops"] =
      benchmark::Counter(flops * state.iterations(), benchmark::Counter::kIsRate);
}

void packed(benchmark::State& state) {
  const int64_t n = state.range(0), in = state.range(1), out = state.range(2);
  ThreadPool pool(kThreads);
  PackedWeights weights(out, in);
  at::Tensor w = at::randn({out, in});
  for (int64_t row = 0; row < out; ++row) {
    weights.set_row(row, {w.const_data_ptr<float>() + row * in, static_cast<size_t>(in)});
  }
  at::Tensor x = at::randn({n, in});
  at::Tensor y = at::empty({n, out});
  for (auto _ : state)
    linear(x.const_data_ptr<float>(), n, weights, y.mutable_data_ptr<float>(), pool);
  count_flops(state);
}
BENCHMARK(packed)->Apply(shapes);

void torch(benchmark::State& state) {
  const int64_t n = state.range(0), in = state.range(1), out = state.range(2);
  at::set_num_threads(kThreads);
  at::Tensor w = at::randn({out, in}).t();
  at::Tensor x = at::randn({n, in});
  at::Tensor y = at::empty({n, out});
  for (auto _ : state) at::mm_out(y, x, w);
  count_flops(state);
}
BENCHMARK(torch)->Apply(shapes);

}  // namespace
}  // namespace ragcache::kernels

BENCHMARK_MAIN();
