// What the engine adds to the model: a cache hit's time to its first token beside the bare prefill
// of its tail at that position, the same from the host beside that and the copy alone, how much of
// a slow copy hides behind the computation, and how long streams wait while a long prompt enters.
// Usage: services_worker_engine_bench MODEL.gguf [THREADS]
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
constexpr uint32_t kHostBlocks = 256;
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
  explicit Bench(LlamaModel& a_model, std::optional<double> throttle_mib_s = std::nullopt)
      : model(a_model),
        arena(*HostArena::open(arena_path, model.fingerprint(), model.kv_layout(), kHostBlocks)),
        transfers(
            Copier(model.kv_layout(), pool.memory(), arena), [] {}, throttle_mib_s),
        engine(
            model, std::move(pool), {kMaxBatchTokens}, metrics, steady_now,
            Engine::Host{.arena = arena,
                         .transfers = transfers,
                         .load_bytes_per_second = 1e9,
                         .on_load = [this](const Engine::LoadTrace& a_load) { load = a_load; }}) {
    engine.take({1, 1, OpenStream{1}});
    engine.step();
    engine.take_events();
  }

  ~Bench() {
    transfers.stop();
    unlink(arena_path.c_str());
  }

  Generate make(const std::string& id, size_t prefix, size_t tail, uint32_t max_tokens) {
    const std::vector<uint32_t> tokens = some_tokens(prefix, 1);
    const SegmentId segment =
        SegmentId::derive(SegmentId::root(model.fingerprint(), "bench"), digest_of_tokens(tokens));
    return {.request_id = id,
            .segments = {{segment, tokens}},
            .tail = some_tokens(tail, static_cast<uint32_t>(id.size()) * 17),
            .reserved_blocks = blocks_of(prefix) + blocks_of(tail + max_tokens),
            .max_tokens = max_tokens};
  }
  void take(decltype(Command::body) body) { engine.take({1, ++commands, std::move(body)}); }
  // Seconds to the first token of a prompt whose prefix is there.
  double time_hit(Tier tier) {
    Generate command = make("h", kPrefix, kTail, 1);
    command.segments[0].expected = tier;
    const TimePoint start = steady_now();
    take(std::move(command));
    until_token("h");
    return to_seconds(steady_now() - start);
  }
  void settle() {
    while (engine.has_transfers() || engine.has_requests()) engine.step();
    engine.take_events();
  }
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

  std::string arena_path = absl::StrCat("/dev/shm/ragcache-bench-", getpid());
  LlamaModel& model;
  BlockPool pool = *BlockPool::create(model.kv_layout(), kBlocks);
  HostArena arena;
  TransferActor transfers;
  Engine::LoadTrace load;  // the last one
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

// The prefix goes to the host; each round takes it from there, and from the device.
void host_hits(LlamaModel& model) {
  Bench bench(model);
  const SegmentId id = bench.make("c", kPrefix, kTail, 1).segments[0].id;
  bench.take(bench.make("c", kPrefix, kTail, 1));
  const double cold = bench.until_token("c");
  bench.take(Replicate{{id}});
  bench.settle();
  BlockPool target = *BlockPool::create(model.kv_layout(), blocks_of(kPrefix));
  Copier copier(model.kv_layout(), target.memory(), bench.arena);
  std::vector<double> device, host, copy;
  for (int round = 0; round < kRounds; ++round) {
    device.push_back(bench.time_hit(Tier::kDevice));
    bench.take(Drop{{id}, Tier::kDevice});
    // The copy alone, into memory that a first round has touched.
    Transfer::Piece piece{.host = {.key = {.id = id}}, .verify = true};
    for (uint32_t i = 0; i < blocks_of(kPrefix); ++i) {
      piece.host.blocks.push_back(static_cast<int32_t>(i));  // the arena's first copy
      piece.device_blocks.push_back(static_cast<int32_t>(i));
    }
    Transfer alone(Transfer::Kind::kLoad, 0, {piece}, model.kv_layout());
    const TimePoint start = steady_now();
    while (!copier.advance(alone)) {
    }
    copy.push_back(to_seconds(steady_now() - start));
    host.push_back(bench.time_hit(Tier::kHost));
    bench.settle();
  }
  print("hit on the device, to the first token", device);
  print("its copy alone, with checksums", copy);
  print("hit on the host", host);
  std::printf("computed: %.1f ms\n", cold * 1e3);

  // As slow a copy as just fits behind the computation.
  std::sort(device.begin(), device.end());
  const double seconds = device[device.size() / 2] * 0.9;
  Bench slow(model, static_cast<double>(blocks_of(kPrefix)) *
                        static_cast<double>(model.kv_layout().block_bytes()) / seconds / (1 << 20));
  slow.take(slow.make("c", kPrefix, kTail, 1));
  slow.until_token("c");
  slow.take(Replicate{{id}});
  slow.settle();
  std::vector<double> hidden, hit;
  for (int round = 0; round < kRounds; ++round) {
    slow.take(Drop{{id}, Tier::kDevice});
    hit.push_back(slow.time_hit(Tier::kHost));
    slow.settle();
    double stalled = 0;
    for (size_t l = 0; l < slow.load.read.size(); ++l) {
      stalled += to_seconds(slow.load.read[l] - slow.load.reached[l]);
    }
    hidden.push_back(1 - stalled / to_seconds(slow.load.end - slow.load.start));
  }
  print("hit on the host, slow copy", hit);
  std::sort(hidden.begin(), hidden.end());
  std::printf("of its %.0f ms %.0f %% hidden (%.0f to %.0f)\n",
              to_seconds(slow.load.end - slow.load.start) * 1e3, hidden[kRounds / 2] * 100,
              hidden.front() * 100, hidden.back() * 100);
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
  host_hits(model);
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
