#pragma once

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

// For benches of the engine.
namespace ragcache::worker {

inline std::vector<uint32_t> some_tokens(size_t count, uint32_t salt) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i)
    tokens[i] = 1000 + (static_cast<uint32_t>(i) * 7919 + salt) % 20000;
  return tokens;
}

// An engine with both tiers, and the commands of a controller.
struct BenchEngine {
  static constexpr uint32_t kMaxBatchTokens = 512;  // the model takes as many
  static constexpr uint32_t kBlocks = 1024;
  static constexpr uint32_t kHostBlocks = 512;

  struct Options {
    int64_t group_layers = Copier::kGroupLayers;  // of a transfer
    std::optional<double> throttle_mib_s = std::nullopt;
    double load_bytes_per_second = 1e9;  // what the engine expects
  };

  explicit BenchEngine(LlamaModel& a_model) : BenchEngine(a_model, Options()) {}
  BenchEngine(LlamaModel& a_model, const Options& options)
      : model(a_model),
        arena(*HostArena::open(arena_path(), model.fingerprint(), model.kv_layout(), kHostBlocks)),
        transfers(
            Copier(model.kv_layout(), pool.memory(), arena, options.group_layers), [] {},
            options.throttle_mib_s),
        engine(
            model, std::move(pool), {kMaxBatchTokens}, metrics, steady_now,
            Engine::Host{.arena = arena,
                         .transfers = transfers,
                         .load_bytes_per_second = options.load_bytes_per_second,
                         .on_load = [this](const Engine::LoadTrace& a_load) { load = a_load; }}) {
    engine.take({1, 1, OpenStream{1}});
    engine.step();
    engine.take_events();
  }

  ~BenchEngine() { transfers.stop(); }

  // A prompt of one segment and a tail. Prefixes are equal as far as they go, with ids by length.
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
  // Seconds until the command's first token.
  double time_to_token(Generate command) {
    const std::string id = command.request_id;
    const TimePoint start = steady_now();
    take(std::move(command));
    until_token(id);
    return to_seconds(steady_now() - start);
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
  void settle() {
    while (engine.has_transfers() || engine.has_requests()) engine.step();
    engine.take_events();
  }

  // One for all of a process: what one saves is there for the others.
  static std::string arena_path() { return absl::StrCat("/dev/shm/ragcache-bench-", getpid()); }
  static void remove_arena() { unlink(arena_path().c_str()); }

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

}  // namespace ragcache::worker
