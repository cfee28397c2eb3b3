#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/model/tiny_model.h"

// For tests of the engine.
namespace ragcache::worker {

constexpr uint32_t kBlockTokens = kernels::KvLayout::kBlockTokens;

inline uint32_t blocks_of(size_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

inline std::vector<uint32_t> random_tokens(std::mt19937& random, size_t count) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = random() % 61;
  return tokens;
}

// An engine with a tiny model, and the controller's side of the ledger: every event is checked
// against it.
class Harness {
 public:
  explicit Harness(uint32_t blocks, uint32_t max_batch_tokens = 64)
      : engine_(std::make_unique<Engine>(model_, *BlockPool::create(model_.kv_layout(), blocks),
                                         Engine::Limits{max_batch_tokens}, metrics_,
                                         [this] { return TimePoint() + elapsed(); })),
        total_(blocks),
        free_(blocks) {
    send(OpenStream{++stream_});
    step();
  }

  struct Answer {
    std::vector<uint32_t> tokens;
    std::vector<TokenLogprob> logprobs;
    std::optional<uint32_t> cached_tokens;
    std::string end;  // finished, cancelled, preempted, invalid or missing
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
      generate.segments.push_back({segment, document, cached});
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
  void drop(const SegmentId& id) {
    free_ += cached_.at(id);
    cached_blocks_ -= cached_.at(id);
    cached_.erase(id);
    send(Drop{{id}});
  }
  void send(decltype(Command::body) body) { engine_->take({stream_, ++command_, std::move(body)}); }
  void reopen() {
    ++stream_;
    command_ = 0;
    // The new controller's ledger starts from the snapshot.
    answers.clear();
    cached_.clear();
    cached_blocks_ = reserved_ = 0;
    free_ = total_;
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
      const bool ran = step();
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

  Engine& engine() { return *engine_; }
  uint32_t free() const { return free_; }
  uint32_t reserved() const { return reserved_; }
  const std::map<SegmentId, uint32_t>& cached() const { return cached_; }
  std::map<std::string, Answer> answers;
  std::vector<SnapshotPage::Entry> snapshot;
  Load last_load{};

 private:
  void on(SnapshotPage& page) {
    snapshot = page.entries;
    for (const auto& entry : page.entries) {
      EXPECT_TRUE(!entry.parent.has_value() || cached_.contains(*entry.parent));
      cached_[entry.id] = entry.blocks;
      cached_blocks_ += entry.blocks;
      free_ -= entry.blocks;
    }
  }
  void on(SegmentReady& ready) {
    Answer& answer = running(ready.request_id);
    ASSERT_GE(answer.reserved, ready.blocks);
    answer.reserved -= ready.blocks;
    reserved_ -= ready.blocks;
    if (cached_.emplace(ready.id, ready.blocks).second) {
      cached_blocks_ += ready.blocks;
    } else {
      free_ += ready.blocks;
    }
  }
  void on(Tokens& tokens) {
    Answer& answer = running(tokens.request_id);
    EXPECT_EQ(answer.tokens.empty(), tokens.cached_tokens.has_value());
    if (tokens.cached_tokens.has_value()) answer.cached_tokens = tokens.cached_tokens;
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
    last_load = load;
    if (load.last_command != command_) return;
    EXPECT_EQ(load.free_blocks, free_);
    EXPECT_EQ(load.reserved_blocks, reserved_);
    EXPECT_EQ(load.cached_blocks, cached_blocks_);
  }
  void on(Finished& finished) {
    end(finished.request_id, "finished");
    EXPECT_EQ(finished.completion_tokens, answers[finished.request_id].tokens.size());
  }
  void on(Cancelled& cancelled) { end(cancelled.request_id, "cancelled"); }
  void on(Failed& failed) {
    const char* names[] = {"missing", "preempted", "invalid"};
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
  LlamaModel model_{tiny_weights(11), 256, threads_};
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  std::unique_ptr<Engine> engine_;
  uint64_t stream_ = 0;
  uint64_t command_ = 0;
  uint32_t total_;
  uint32_t free_;
  uint32_t reserved_ = 0;
  uint32_t cached_blocks_ = 0;
  std::map<SegmentId, uint32_t> cached_;
};

}  // namespace ragcache::worker
