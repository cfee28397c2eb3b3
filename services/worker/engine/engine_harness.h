#pragma once

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/model/tiny_model.h"

// For tests of the engine.
namespace ragcache::worker {

inline std::vector<uint32_t> random_tokens(std::mt19937& random, size_t count) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = random() % 61;
  return tokens;
}

// Transfers that move when a test says so, or when the engine waits for them.
class ManualTransfers final : public TransferQueue {
 public:
  explicit ManualTransfers(Copier copier) : copier_(copier) {}

  void submit(std::shared_ptr<Transfer> transfer) override {
    waiting_.push_back(std::move(transfer));
  }
  bool wait(const Transfer& transfer, int64_t layer) override {
    while (!transfer.ended() && transfer.layers() <= layer) {
      if (!advance()) return false;
    }
    return true;
  }
  bool wait_for_end(const Transfer& transfer) override {
    while (!transfer.ended()) {
      if (!advance()) return false;
    }
    return true;
  }

  // The first transfer's next group. False: none moves.
  bool advance() {
    if (held || waiting_.empty()) return false;
    Transfer& first = *waiting_.front();
    if (fails > 0 && first.kind() != Transfer::Kind::kErase && first.layers() >= fails_at) {
      --fails;
      copier_.give_up(first);
    } else {
      copier_.advance(first);
    }
    if (first.ended()) waiting_.pop_front();
    return true;
  }
  void finish() {
    while (advance()) {
    }
  }
  size_t waiting() const { return waiting_.size(); }

  bool held = false;     // copies never end
  int fails = 0;         // of the next copies, so many fail
  int64_t fails_at = 0;  // once they have so many layers

 private:
  Copier copier_;
  std::deque<std::shared_ptr<Transfer>> waiting_;
};

// An engine with a tiny model, and the controller's side of the ledger: every event is checked
// against it.
class Harness {
 public:
  struct Options {
    uint32_t blocks;
    uint32_t max_batch_tokens = 64;
    uint32_t host_blocks = 0;     // 0: no host tier
    std::string arena_path = {};  // empty: one of its own
    bool manual = false;          // transfers
    Engine::Verify verify = Engine::Verify::kAlways;
    kernels::KvType kv_type = kernels::KvType::kF32;
  };

  explicit Harness(uint32_t blocks, uint32_t max_batch_tokens = 64)
      : Harness(Options{.blocks = blocks, .max_batch_tokens = max_batch_tokens}) {}
  explicit Harness(const Options& options)
      : model_(tiny_weights(11), 256, threads_, options.kv_type),
        total_(options.blocks),
        free_(options.blocks),
        host_total_(options.host_blocks),
        host_free_(options.host_blocks) {
    BlockPool pool = *BlockPool::create(model_.kv_layout(), options.blocks);
    std::optional<Engine::Host> host;
    if (options.host_blocks > 0) {
      arena_path_ = options.arena_path.empty()
                        ? testing::TempDir() + absl::StrCat("arena_", getpid(), "_", ++arenas)
                        : options.arena_path;
      remove_arena_ = options.arena_path.empty();
      auto arena = HostArena::open(arena_path_, model_.fingerprint(), model_.kv_layout(),
                                   options.host_blocks);
      EXPECT_TRUE(arena.ok()) << arena.status();
      arena_ = std::make_unique<HostArena>(*std::move(arena));
      const Copier copier(model_.kv_layout(), pool.memory(), *arena_);
      if (options.manual) {
        auto manual = std::make_unique<ManualTransfers>(copier);
        manual_ = manual.get();
        transfers_ = std::move(manual);
      } else {
        transfers_ = std::make_unique<TransferActor>(copier, [] {});
      }
      host.emplace(Engine::Host{
          .arena = *arena_,
          .transfers = *transfers_,
          .verify = options.verify,
          .on_load = [this](const Engine::LoadTrace& load) { loads.push_back(load); }});
    }
    engine_ = std::make_unique<Engine>(
        model_, std::move(pool), Engine::Limits{.max_batch_tokens = options.max_batch_tokens},
        metrics_, [this] { return TimePoint() + elapsed(); }, host);
    send(OpenStream{++stream_});
    step();
  }
  ~Harness() {
    transfers_.reset();
    if (remove_arena_) std::filesystem::remove(arena_path_);
  }

  struct Answer {
    std::vector<uint32_t> tokens;
    std::vector<TokenLogprob> logprobs;
    std::optional<uint32_t> cached_tokens;  // on the device
    uint32_t cached_host_tokens = 0;
    uint64_t load_us = 0;
    std::string end;  // finished, cancelled, preempted, invalid, missing or internal
    std::string message;
    std::vector<SegmentId> missing;
    uint32_t reserved = 0;
    uint32_t need = 0;
  };

  // Reserves exactly what a controller would; `growth` of decode at first.
  Generate make(const std::string& id, const std::vector<std::vector<uint32_t>>& documents,
                std::vector<uint32_t> tail, uint32_t max_tokens, uint32_t growth = 16) {
    Generate generate{.request_id = id, .tail = std::move(tail), .max_tokens = max_tokens};
    SegmentId parent = SegmentId::root(model_.fingerprint(), "scope");
    bool cached = true;
    for (const auto& document : documents) {
      const SegmentId segment = SegmentId::derive(parent, digest_of_tokens(document));
      cached = cached && cached_.contains(segment);
      if (!cached) generate.reserved_blocks += blocks_of(document.size());
      generate.segments.push_back({segment, document,
                                   cached                    ? Tier::kDevice
                                   : host_.contains(segment) ? Tier::kHost
                                                             : Tier::kNone});
      parent = segment;
    }
    generate.reserved_blocks +=
        blocks_of(generate.tail.size() + std::min(growth, generate.max_tokens));
    return generate;
  }

  void generate(const Generate& command) {
    Answer& answer = answers[command.request_id];
    answer = {};
    answer.reserved = command.reserved_blocks;
    free_ -= command.reserved_blocks;
    reserved_ += command.reserved_blocks;
    send(command);
  }
  void grow(const std::string& id, uint32_t blocks) {
    Answer& answer = answers[id];
    answer.need = 0;
    answer.reserved += blocks;
    free_ -= blocks;
    reserved_ += blocks;
    send(Grow{id, blocks});
  }
  void drop(SegmentId id) {
    free_ += cached_.at(id);
    cached_blocks_ -= cached_.at(id);
    cached_.erase(id);
    send(Drop{{id}});
  }
  void replicate(const SegmentId& id) {
    if (!host_.contains(id)) {
      host_[id] = cached_.at(id);
      host_free_ -= cached_.at(id);
    }
    saved_.erase(id);
    send(Replicate{{id}});
  }
  void drop_from_host(const SegmentId& id) {
    host_free_ += host_.at(id);
    host_.erase(id);
    saved_.erase(id);
    send(Drop{{id}, Tier::kHost});
  }
  void demote(const std::vector<SegmentId>& ids) {
    for (const SegmentId& id : ids) replicate(id);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) drop(*id);
  }
  void send(decltype(Command::body) body) { engine_->take({stream_, ++command_, std::move(body)}); }
  void reopen() {
    ++stream_;
    command_ = 0;
    // The new controller's ledger starts from the snapshot.
    answers.clear();
    cached_.clear();
    host_.clear();
    saved_.clear();
    cached_blocks_ = reserved_ = 0;
    free_ = total_;
    host_free_ = host_total_;
    send(OpenStream{stream_});
    step();
  }

  bool step() {
    const bool ran = engine_->step();
    for (Event& event : engine_->take_events()) {
      EXPECT_EQ(event.stream, stream_);
      std::visit([this](auto& body) { on(body); }, event.body);
    }
    engine_->check_invariants();
    return ran;
  }
  void run() {
    while (engine_->has_requests()) {
      bool ran = step();
      if (!ran && engine_->has_transfers()) {
        ran = manual_ == nullptr || manual_->advance();
      }
      bool grew = false;
      for (auto& [id, answer] : answers) {
        if (answer.need == 0) continue;
        grow(id, answer.need);
        grew = true;
      }
      ASSERT_TRUE(ran || grew) << "requests stand still";
    }
    step();
  }
  // Virtual time: what was computed so far, by its cost.
  Duration elapsed() {
    return kTokenTime *
           static_cast<int64_t>(metrics_.iteration_tokens.Collect().histogram.sample_sum);
  }
  static constexpr Duration kTokenTime = std::chrono::milliseconds(4);

  Answer run_alone(const Generate& command) {
    generate(command);
    run();
    return answers.at(command.request_id);
  }

  // Until no transfer is left.
  void settle() {
    while (engine_->has_transfers()) {
      if (manual_ != nullptr) manual_->finish();
      step();
    }
    if (manual_ != nullptr) manual_->finish();  // what is erased
    step();
  }

  Engine& engine() { return *engine_; }
  Metrics& metrics() { return metrics_; }
  uint64_t block_bytes() const { return static_cast<uint64_t>(model_.kv_layout().block_bytes()); }
  HostArena& arena() { return *arena_; }
  ManualTransfers& transfers() { return *manual_; }
  uint32_t host_free() const { return host_free_; }
  const std::map<SegmentId, uint32_t>& on_host() const { return host_; }
  const std::set<SegmentId>& saved() const { return saved_; }
  uint32_t free() const { return free_; }
  uint32_t reserved() const { return reserved_; }
  const std::map<SegmentId, uint32_t>& cached() const { return cached_; }
  std::map<std::string, Answer> answers;
  std::vector<SnapshotPage::Entry> snapshot;
  Load last_load{};
  std::vector<SegmentLost> lost;
  std::vector<SegmentReady> ready;
  std::vector<Engine::LoadTrace> loads;

 private:
  void on(SnapshotPage& page) {
    snapshot = page.entries;
    for (const auto& entry : page.entries) {
      EXPECT_TRUE(entry.on_device || entry.on_host);
      if (entry.on_device) {
        cached_[entry.id] = entry.blocks;
        cached_blocks_ += entry.blocks;
        free_ -= entry.blocks;
      }
      if (entry.on_host) {
        host_[entry.id] = entry.blocks;
        saved_.insert(entry.id);
        host_free_ -= entry.blocks;
      }
    }
  }
  void on(SegmentReady& segment) {
    ready.push_back(segment);
    Answer& answer = running(segment.request_id);
    ASSERT_GE(answer.reserved, segment.blocks);
    answer.reserved -= segment.blocks;
    reserved_ -= segment.blocks;
    if (cached_.emplace(segment.id, segment.blocks).second) {
      cached_blocks_ += segment.blocks;
    } else {
      free_ += segment.blocks;
    }
  }
  // Either may cross a command that makes it stale.
  void on(SegmentSaved& segment) {
    if (host_.contains(segment.id)) saved_.insert(segment.id);
  }
  void on(SegmentLost& segment) {
    lost.push_back(segment);
    if (!host_.contains(segment.id)) return;
    host_free_ += host_.at(segment.id);
    host_.erase(segment.id);
    saved_.erase(segment.id);
  }
  void on(Tokens& tokens) {
    Answer& answer = running(tokens.request_id);
    EXPECT_EQ(answer.tokens.empty(), tokens.cached_device_tokens.has_value());
    if (tokens.cached_device_tokens.has_value()) {
      answer.cached_tokens = tokens.cached_device_tokens;
      answer.cached_host_tokens = tokens.cached_host_tokens;
    }
    answer.tokens.insert(answer.tokens.end(), tokens.ids.begin(), tokens.ids.end());
    answer.logprobs.insert(answer.logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
  }
  void on(NeedBlocks& need) {
    EXPECT_GT(need.blocks, 0u);
    Answer& answer = running(need.request_id);
    EXPECT_EQ(answer.need, 0u) << "asked twice";
    answer.need = need.blocks;
  }
  void on(Load& load) {
    EXPECT_EQ(load.total_blocks, total_);
    EXPECT_EQ(load.free_blocks + load.reserved_blocks + load.cached_blocks, total_);
    EXPECT_EQ(load.host_free_blocks + load.host_cached_blocks, host_total_);
    last_load = load;
    if (load.last_command != command_) return;
    EXPECT_EQ(load.free_blocks, free_);
    EXPECT_EQ(load.reserved_blocks, reserved_);
    EXPECT_EQ(load.cached_blocks, cached_blocks_);
    EXPECT_EQ(load.host_free_blocks, host_free_);
  }
  void on(Finished& finished) {
    end(finished.request_id, "finished");
    EXPECT_EQ(finished.completion_tokens, answers[finished.request_id].tokens.size());
    answers[finished.request_id].load_us = finished.load_us;
  }
  void on(Cancelled& cancelled) { end(cancelled.request_id, "cancelled"); }
  void on(Failed& failed) {
    const char* names[] = {"missing", "preempted", "invalid", "internal"};
    end(failed.request_id, names[static_cast<int>(failed.code)]);
    answers[failed.request_id].message = failed.message;
    answers[failed.request_id].missing = failed.missing;
  }

  Answer& running(const std::string& id) {
    EXPECT_TRUE(answers.contains(id)) << id;
    EXPECT_EQ(answers[id].end, "") << id << " spoke after its end";
    return answers[id];
  }
  void end(const std::string& id, const std::string& how) {
    Answer& answer = running(id);
    answer.end = how;
    answer.need = 0;
    free_ += answer.reserved;
    reserved_ -= answer.reserved;
    answer.reserved = 0;
  }

  kernels::ThreadPool threads_{1};
  LlamaModel model_;
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  static inline int arenas = 0;
  std::string arena_path_;
  bool remove_arena_ = false;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TransferQueue> transfers_;  // ends before the engine's memory does
  ManualTransfers* manual_ = nullptr;
  uint64_t stream_ = 0;
  uint64_t command_ = 0;
  uint32_t total_;
  uint32_t free_;
  uint32_t host_total_;
  uint32_t host_free_;
  uint32_t reserved_ = 0;
  uint32_t cached_blocks_ = 0;
  std::map<SegmentId, uint32_t> cached_;  // on the device, with their blocks
  std::map<SegmentId, uint32_t> host_;    // ordered or there
  std::set<SegmentId> saved_;             // there
};

}  // namespace ragcache::worker
