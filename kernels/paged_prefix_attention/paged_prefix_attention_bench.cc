// The paged kernel beside a gather of the keys and values followed by Torch's attention.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <numeric>

#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

namespace ragcache::kernels {
namespace {

constexpr int kThreads = 2;
constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr KvLayout kLayout{1, kKvHeads, kHeadDim};

void shapes(benchmark::internal::Benchmark* bench) {
  for (auto [queries, context] :
       {std::pair{128, 128}, {512, 512}, {2048, 2048}, {40, 1540}, {1, 512}, {1, 2048}}) {
    bench->Args({queries, context});
  }
  bench->ArgNames({"queries", "context"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void count_flops(benchmark::State& state) {
  const double queries = state.range(0), context = state.range(1);
  const double pairs = queries * (context - queries) + queries * (queries + 1) / 2;
  state.counters["flops"] = benchmark::Counter(4.0 * pairs * kHeads * kHeadDim * state.iterations(),
                                               benchmark::Counter::kIsRate);
}

void paged(benchmark::State& state) {
  const int32_t queries = state.range(0), context = state.range(1);
  std::vector<int32_t> slots(context);
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<int32_t> query_start{0, queries}, context_start{0, context};
  at::Tensor q = at::randn({queries, kHeads * kHeadDim});
  at::Tensor kv = at::randn({(context + 15) / 16 * kLayout.block_floats()});
  at::Tensor y = at::empty_like(q);
  ThreadPool pool(kThreads);
  AttentionScratch scratch;
  const AttentionPlan plan({query_start, context_start, slots}, kHeads, kLayout, kThreads);
  const PagedPrefixAttention args{q.const_data_ptr<float>(), kHeads * kHeadDim,
                                  kv.const_data_ptr<float>(), 0, y.mutable_data_ptr<float>()};
  for (auto _ : state) paged_prefix_attention(args, plan, scratch, pool);
  count_flops(state);
}
BENCHMARK(paged)->Apply(shapes);

void torch_gathered(benchmark::State& state) {
  const int64_t queries = state.range(0), context = state.range(1);
  at::set_num_threads(kThreads);
  at::Tensor q = at::randn({1, kHeads, queries, kHeadDim});
  at::Tensor k = at::randn({1, kKvHeads, context, kHeadDim});
  at::Tensor v = at::randn({1, kKvHeads, context, kHeadDim});
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
