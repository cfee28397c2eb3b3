// Products of bytes over the shapes of a model of SmolLM2-135M's size, by each version that the
// processor runs.
#include <benchmark/benchmark.h>

#include "kernels/int8_linear/int8_linear.h"
#include "kernels/int8_linear/int8_linear_versions.h"

namespace ragcache::kernels {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kCacheBytes = 128 << 20;

void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t tokens : {1, 8, 40, 512}) {
    bench->Args({tokens, 576, 960});
    bench->Args({tokens, 576, 576});
    bench->Args({tokens, 576, 3072});
    bench->Args({tokens, 1536, 576});
  }
  bench->ArgNames({"tokens", "in", "out"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

using Multiply = decltype(int8_linear);

void product(benchmark::State& state, WeightFormat format, Multiply* multiply = int8_linear) {
  const int64_t n = state.range(0), in = state.range(1), out = state.range(2);
  ThreadPool pool(kThreads);
  // As many copies as do not fit the last level cache together: a model's weights come from memory.
  std::vector<PackedWeights> weights;
  for (int64_t bytes = 0; bytes < kCacheBytes; bytes += weights.back().bytes()) {
    weights.emplace_back(out, in, format);
    const std::vector<uint8_t> row(weights.back().panel_bytes() / PackedWeights::kPanel, 0x31);
    for (int64_t o = 0; o < out; ++o) weights.back().set_row(o, row);
  }
  std::vector<float> x(n * in), y(n * out);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) - 50;
  Int8Rows rows;
  size_t next = 0;
  for (auto _ : state) {
    multiply(x.data(), n, weights[next++ % weights.size()], y.data(), rows, pool);
  }
  const auto flops = 2.0 * static_cast<double>(n * in * out);
  state.counters["flops"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(product, q4_1, WeightFormat::kQ4_1)->Apply(shapes);
BENCHMARK_CAPTURE(product, q4_1_avx2, WeightFormat::kQ4_1, avx2::int8_linear)->Apply(shapes);
BENCHMARK_CAPTURE(product, q8_0, WeightFormat::kQ8_0)->Apply(shapes);
BENCHMARK_CAPTURE(product, q8_0_avx2, WeightFormat::kQ8_0, avx2::int8_linear)->Apply(shapes);

}  // namespace
}  // namespace ragcache::kernels

BENCHMARK_MAIN();
