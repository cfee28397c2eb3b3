// What the engine adds to the model: a cache hit's time to its first token beside the bare prefill
// of its tail at that position, and how long streams wait while a long prompt enters.
// Usage: services_worker_engine_bench MODEL.gguf [THREADS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "common/model/model_files.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr size_t kPrefix = 2000;
constexpr size_t kTail = 48;
constexpr uint32_t kMaxBatchTokens = 512;
constexpr uint32_t kBlocks = 1024;
constexpr int kRounds = 7;

std::vector<uint32_t> some_tokens(size_t count, uint32_t salt) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i)
    tokens[i] = 1000 + (static_cast<uint32_t>(i) * 7919 + salt) % 20000;
  return tokens;
}

uint32_t blocks_of(size_t tokens) {
  constexpr size_t kBlockTokens = kernels::KvLayout::kBlockTokens;
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

struct Bench {
  Bench(LlamaModel& a_model)  // NOLINT
      : model(a_model),
        engine(model, *BlockPool::create(model.kv_layout(), kBlocks), {kMaxBatchTokens}, metrics) {
    engine.take({1, 1, OpenStream{1}});
    engine.step();
    engine.take_events();
  }

  Generate make(const std::string& id, size_t prefix, size_t tail, uint32_t max_tokens) {
    const std::vector<uint32_t> tokens = some_tokens(prefix, 1);
    const SegmentId segment =
        SegmentId::derive(SegmentId::root(model.fingerprint(), "bench"), digest_of_tokens(tokens));
    return {.request_id = id,
            .segments = {{segment, tokens, false}},
            .tail = some_tokens(tail, static_cast<uint32_t>(id.size()) * 17),
            .reserved_blocks = blocks_of(prefix) + blocks_of(tail + max_tokens),
            .max_tokens = max_tokens};
  }
  void take(Generate command) { engine.take({1, ++commands, std::move(command)}); }
  // Seconds until the request's first token, or its next ones.
  double until_token(const std::string& id) {
    const TimePoint start = steady_now();
    for (;;) {
      engine.step();
      for (const Event& event : engine.take_events()) {
        const auto* tokens = std::get_if<Tokens>(&event.body);
        if (tokens != nullptr && tokens->request_id == id) return to_seconds(steady_now() - start);
      }
    }
  }

  LlamaModel& model;
  prometheus::Registry registry;
  Metrics metrics{registry};
  Engine engine;
  uint64_t commands = 1;
};

void print(const char* what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-44s %7.1f ms (%.1f to %.1f)\n", what, seconds[seconds.size() / 2] * 1e3,
              seconds.front() * 1e3, seconds.back() * 1e3);
}

void hits(LlamaModel& model) {
  Bench bench(model);
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
  bench.take(bench.make("c", kPrefix, kTail, 1));
  std::printf("cold, %zu + %zu tokens: %.0f ms\n", kPrefix, kTail, bench.until_token("c") * 1e3);
  std::vector<double> hit, bare;
  for (int round = 0; round < kRounds; ++round) {
    const TimePoint start = steady_now();
    bench.take(bench.make("h", kPrefix, kTail, 1));
    bench.until_token("h");
    hit.push_back(to_seconds(steady_now() - start));
    const TimePoint before = steady_now();
    batch.clear();
    batch.add(tail, slots, true);
    model.forward(batch, own.memory());
    bare.push_back(to_seconds(steady_now() - before));
  }
  print("hit, to the first token", hit);
  print("its tail alone at that position", bare);
}

void streams(LlamaModel& model) {
  Bench bench(model);
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

int run(const char* path, int threads) {
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
  hits(model);
  streams(model);
  return 0;
}

}  // namespace
}  // namespace ragcache::worker

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [THREADS]\n", argv[0]);
    return 2;
  }
  return ragcache::worker::run(
      argv[1], argc > 2 ? std::atoi(argv[2]) : ragcache::kernels::ThreadPool::default_threads());
}
