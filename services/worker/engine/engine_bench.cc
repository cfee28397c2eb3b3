// What the engine adds to the model: a cache hit's time to its first token beside the bare prefill
// of its tail at that position, the same from the host beside that and the copy alone, how much of
// a slow copy hides behind the computation, and how long streams wait while a long prompt enters.
// Usage: services_worker_engine_bench MODEL.gguf [THREADS [hits|host|streams]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model_files.h"
#include "services/worker/engine/bench_engine.h"

namespace ragcache::worker {
namespace {

constexpr size_t kPrefix = 2000;
constexpr size_t kTail = 48;
constexpr uint32_t kMaxBatchTokens = BenchEngine::kMaxBatchTokens;
constexpr int kRounds = 7;

// Seconds to the first token of a prompt whose prefix is there.
double time_hit(BenchEngine& bench, Tier tier) {
  Generate command = bench.make("h", kPrefix, kTail, 1);
  command.segments[0].expected = tier;
  return bench.time_to_token(std::move(command));
}

void print(const char* what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-44s %7.1f ms (%.1f to %.1f)\n", what, seconds[seconds.size() / 2] * 1e3,
              seconds.front() * 1e3, seconds.back() * 1e3);
}

void hits(LlamaModel& model) {
  BenchEngine bench(model);
  BlockPool own = *BlockPool::create(model.kv_layout(), blocks_of(kPrefix + kTail));
  std::vector<int32_t> slots(kPrefix + kTail);
  std::iota(slots.begin(), slots.end(), 0);
  const std::vector<uint32_t> prefix = some_tokens(kPrefix, 1);
  const std::vector<uint32_t> tail = some_tokens(kTail, 17);
  ForwardBatch batch;
  for (size_t done = 0; done < kPrefix; done += kMaxBatchTokens) {
    const size_t count = std::min<size_t>(kMaxBatchTokens, kPrefix - done);
    batch.clear();
    batch.add(std::span(prefix).subspan(done, count), std::span(slots).first(done + count), false);
    model.forward(batch, own.memory());
  }
  std::printf("cold, %zu + %zu tokens: %.0f ms\n", kPrefix, kTail,
              bench.time_to_token(bench.make("c", kPrefix, kTail, 1)) * 1e3);
  std::vector<double> hit, bare;
  for (int round = 0; round < kRounds; ++round) {
    hit.push_back(time_hit(bench, Tier::kDevice));
    const TimePoint before = steady_now();
    batch.clear();
    batch.add(tail, slots, true);
    model.forward(batch, own.memory());
    bare.push_back(to_seconds(steady_now() - before));
  }
  print("hit, to the first token", hit);
  print("its tail alone at that position", bare);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Hits on the host, and of each the share of its copy's time that the computation did not wait.
struct HostHits {
  std::vector<double> seconds;
  std::vector<double> copy_seconds;
  std::vector<double> hidden;

  HostHits(LlamaModel& model, int64_t group, std::optional<double> throttle_mib_s) {
    BenchEngine bench(model, {.group_layers = group, .throttle_mib_s = throttle_mib_s});
    const SegmentId id = bench.make("h", kPrefix, kTail, 1).segments[0].id;
    for (int round = 0; round <= kRounds; ++round) {
      const double hit = time_hit(bench, Tier::kHost);
      bench.settle();
      bench.take(Drop{{id}, Tier::kDevice});
      if (round == 0) continue;  // touches the memory
      seconds.push_back(hit);
      copy_seconds.push_back(to_seconds(bench.load.end - bench.load.start));
      double stalled = 0;
      for (size_t l = 0; l < bench.load.read.size(); ++l) {
        stalled += to_seconds(bench.load.read[l] - bench.load.reached[l]);
      }
      hidden.push_back(1 - stalled / copy_seconds.back());
    }
  }
};

void host_hits(LlamaModel& model) {
  std::vector<double> device, copy, host;
  {
    BenchEngine bench(model);
    const Generate cold = bench.make("c", kPrefix, kTail, 1);
    const SegmentId id = cold.segments[0].id;
    std::printf("computed: %.0f ms\n", bench.time_to_token(cold) * 1e3);
    bench.take(Replicate{{id}});
    bench.settle();
    BlockPool target = *BlockPool::create(model.kv_layout(), blocks_of(kPrefix));
    Copier copier(model.kv_layout(), target.memory(), bench.arena);
    Transfer::Piece piece{.host = {.key = {.id = id}}, .verify = true};
    for (uint32_t i = 0; i < blocks_of(kPrefix); ++i) {
      piece.host.blocks.push_back(static_cast<int32_t>(i));  // the arena's first copy
      piece.device_blocks.push_back(static_cast<int32_t>(i));
    }
    for (int round = 0; round <= kRounds; ++round) {
      const double hit = time_hit(bench, Tier::kDevice);
      Transfer alone(Transfer::Kind::kLoad, 0, {piece}, model.kv_layout());
      const TimePoint start = steady_now();
      while (!copier.advance(alone)) {
      }
      const double copied = to_seconds(steady_now() - start);
      bench.take(Drop{{id}, Tier::kDevice});
      const double loaded = time_hit(bench, Tier::kHost);
      if (round == 0) continue;  // touches the memory
      device.push_back(hit);
      copy.push_back(copied);
      host.push_back(loaded);
    }
    bench.settle();
  }
  print("hit on the device, to the first token", device);
  print("its copy alone, with checksums", copy);
  print("hit on the host", host);
  std::printf("  %.2f of both together\n", median(host) / (median(device) + median(copy)));
  // As slow a copy as just fits behind the computation.
  const double slow_mib_s = static_cast<double>(blocks_of(kPrefix)) *
                            static_cast<double>(model.kv_layout().block_bytes()) /
                            (median(device) * 0.9) / (1 << 20);
  for (const int64_t group : {1, 2, 4, 8, 30}) {
    const HostHits fast(model, group, std::nullopt);
    print(absl::StrCat("hit on the host, groups of ", group).c_str(), fast.seconds);
    std::printf("  of its %.0f ms %.0f %% hidden\n", median(fast.copy_seconds) * 1e3,
                median(fast.hidden) * 100);
    const HostHits slow(model, group, slow_mib_s);
    print("  with a slow copy", slow.seconds);
    std::printf("  of its %.0f ms %.0f %% hidden\n", median(slow.copy_seconds) * 1e3,
                median(slow.hidden) * 100);
  }
}

void streams(LlamaModel& model) {
  BenchEngine bench(model);
  for (const char* id : {"a", "bb"}) {
    bench.take(bench.make(id, 64, kTail, 1000));
    bench.until_token(id);
  }
  std::vector<double> alone, beside;
  for (int i = 0; i < 20; ++i) alone.push_back(bench.until_token("a"));
  print("between tokens of two streams", alone);
  bench.take(bench.make("long", kPrefix, kTail, 1));
  const TimePoint start = steady_now();
  while (bench.engine.has_requests()) {
    const size_t computed = static_cast<size_t>(bench.metrics.prompt_tokens.Value());
    beside.push_back(bench.until_token("a"));
    if (static_cast<size_t>(bench.metrics.prompt_tokens.Value()) == computed) break;
  }
  print("while a prompt of 2,048 tokens enters", beside);
  std::printf("its prefill beside the streams: %.0f ms\n", to_seconds(steady_now() - start) * 1e3);
}

int run(const char* path, int threads, const std::string& part) {
  const auto file = ModelFiles::open(path);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 1;
  }
  kernels::ThreadPool pool(threads);
  auto weights = load_llama_weights(**file, pool);
  if (!weights.ok()) {
    std::fprintf(stderr, "%s\n", weights.status().ToString().c_str());
    return 1;
  }
  LlamaModel model(*std::move(weights), kMaxBatchTokens, pool, kernels::KvType::kF16);
  const auto wanted = [&](const char* name) { return part.empty() || part == name; };
  if (wanted("hits")) hits(model);
  if (wanted("host")) host_hits(model);
  if (wanted("streams")) streams(model);
  BenchEngine::remove_arena();
  return 0;
}

}  // namespace
}  // namespace ragcache::worker

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [THREADS [hits|host|streams]]\n", argv[0]);
    return 2;
  }
  const int threads =
      argc > 2 ? std::atoi(argv[2]) : ragcache::kernels::ThreadPool::default_threads();
  return ragcache::worker::run(argv[1], threads, argc > 3 ? argv[3] : "");
}
