// The paged kernel beside a gather of the keys and values followed by Torch's attention.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <numeric>
#include <random>

#include "kernels/kv_layout/kv_elements.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

namespace ragcache::kernels {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "queries", "context"})
      ->ArgsProduct({{1}, {128}, {128, 640}})
      ->ArgsProduct({{1}, {512}, {512, 2048}})
      ->ArgsProduct({{1}, {2048}, {2048, 4096}})
      ->ArgsProduct({{1}, {40}, {1540}})
      ->ArgsProduct({{1, 8}, {1}, {512, 2048}})
      ->UseRealTime()
      ->MeasureProcessCPUTime()
      ->Unit(benchmark::kMicrosecond);
}

void count_flops(benchmark::State& state) {
  const double queries = state.range(1), context = state.range(2);
  const double pairs = queries * (context - queries) + queries * (queries + 1) / 2;
  state.counters["flops"] =
      benchmark::Counter(4.0 * pairs * kHeads * kHeadDim * state.range(0) * state.iterations(),
                         benchmark::Counter::kIsRate);
}

void paged(benchmark::State& state, KvType type) {
  const auto sequences = static_cast<int32_t>(state.range(0));
  const auto queries = static_cast<int32_t>(state.range(1));
  const auto context = static_cast<int32_t>(state.range(2));
  const KvLayout layout{1, kKvHeads, kHeadDim, type};
  std::vector<int32_t> slots(sequences * context), query_start{0}, context_start{0};
  std::iota(slots.begin(), slots.end(), 0);
  for (int32_t s = 1; s <= sequences; ++s) {
    query_start.push_back(s * queries);
    context_start.push_back(s * context);
  }
  at::Tensor q = at::randn({sequences * queries, kHeads * kHeadDim});
  std::vector<uint8_t> kv((sequences * context + 15) / 16 * layout.block_bytes());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> elements(kHeadDim);
  for (const int32_t slot : slots) {
    for (int64_t head = 0; head < kKvHeads; ++head) {
      for (float& x : elements) x = normal(random);
      write_key(layout, kv.data(), {0, head, slot}, elements);
      write_value(layout, kv.data(), {0, head, slot}, elements);
    }
  }
  at::Tensor y = at::empty_like(q);
  ThreadPool pool(kThreads);
  AttentionScratch scratch;
  const AttentionPlan plan({query_start, context_start, slots}, kHeads, layout);
  const PagedPrefixAttention args{q.const_data_ptr<float>(), kHeads * kHeadDim, kv.data(), 0,
                                  y.mutable_data_ptr<float>()};
  for (auto _ : state) paged_prefix_attention(args, plan, scratch, pool);
  count_flops(state);
}
BENCHMARK_CAPTURE(paged, fp32, KvType::kF32)->Apply(shapes);
BENCHMARK_CAPTURE(paged, fp16, KvType::kF16)->Apply(shapes);
BENCHMARK_CAPTURE(paged, int8, KvType::kI8)->Apply(shapes);

void torch_gathered(benchmark::State& state) {
  const int64_t sequences = state.range(0), queries = state.range(1), context = state.range(2);
  at::set_num_threads(kThreads);
  at::Tensor q = at::randn({sequences, kHeads, queries, kHeadDim});
  at::Tensor k = at::randn({sequences, kKvHeads, context, kHeadDim});
  at::Tensor v = at::randn({sequences, kKvHeads, context, kHeadDim});
  at::Tensor order = at::randperm(context, at::kLong);
  std::optional<at::Tensor> mask;
  if (queries != 1 && queries != context) {
    mask = at::ones({queries, context}, at::kBool).tril(context - queries);
  }
  for (auto _ : state) {
    at::Tensor keys = k.index_select(2, order).repeat_interleave(kHeads / kKvHeads, 1);
    at::Tensor values = v.index_select(2, order).repeat_interleave(kHeads / kKvHeads, 1);
    benchmark::DoNotOptimize(
        at::scaled_dot_product_attention(q, keys, values, mask, 0.0, queries == context));
  }
  count_flops(state);
}
BENCHMARK(torch_gathered)->Apply(shapes);

}  // namespace
}  // namespace ragcache::kernels

BENCHMARK_MAIN();
