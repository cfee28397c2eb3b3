#include "services/worker/engine/engine.h"

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"
#include "services/worker/model/tiny_model.h"

namespace ragcache::worker {
namespace {

constexpr uint32_t kBlockTokens = kernels::KvLayout::kBlockTokens;

uint32_t blocks_of(size_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

std::vector<uint32_t> random_tokens(std::mt19937& random, size_t count) {
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
                                         Engine::Limits{max_batch_tokens}, metrics_)),
        total_(blocks),
        free_(blocks) {
    send(OpenStream{++stream_});
    step();
  }

  struct Answer {
    std::vector<uint32_t> tokens;
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

TEST(Engine, AnswersTheSameColdWarmAndAfterADropInChunksOfAnySize) {
  std::mt19937 random(21);
  const std::vector<std::vector<uint32_t>> documents = {
      random_tokens(random, 9), random_tokens(random, 70), random_tokens(random, 32)};
  const std::vector<uint32_t> tail = random_tokens(random, 13);
  std::vector<uint32_t> expected;
  for (uint32_t chunk : {256, 64, 16, 7, 1}) {
    Harness harness(100, chunk);
    const auto cold = harness.run_alone(harness.make("cold", documents, tail, 30));
    EXPECT_EQ(cold.end, "finished");
    EXPECT_EQ(cold.cached_tokens, 0u);
    EXPECT_EQ(cold.tokens.size(), 30u);
    if (expected.empty()) expected = cold.tokens;
    EXPECT_EQ(cold.tokens, expected) << "in chunks of " << chunk;
    const auto warm = harness.run_alone(harness.make("warm", documents, tail, 30));
    EXPECT_EQ(warm.cached_tokens, 111u);
    EXPECT_EQ(warm.tokens, expected);
    // The last document goes: it alone is computed again.
    harness.drop(harness.make("x", documents, tail, 1).segments[2].id);
    const auto again = harness.run_alone(harness.make("again", documents, tail, 30));
    EXPECT_EQ(again.cached_tokens, 79u);
    EXPECT_EQ(again.tokens, expected);
  }
}

TEST(Engine, AnswersInABatchAsAlone) {
  std::mt19937 random(22);
  std::vector<Generate> commands;
  std::map<std::string, std::vector<uint32_t>> expected;
  Harness together(400, 48);
  for (int i = 0; i < 12; ++i) {
    commands.push_back(together.make(
        std::to_string(i),
        {random_tokens(random, 1 + random() % 60), random_tokens(random, 1 + random() % 60)},
        random_tokens(random, 1 + random() % 40), 1 + random() % 40));
    commands.back().sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.8f,
                                .top_p = 0.9f,
                                .top_k = 20,
                                .seed = static_cast<uint64_t>(i)};
    Harness alone(100);
    expected[commands.back().request_id] = alone.run_alone(commands.back()).tokens;
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    together.generate(commands[i]);
    if (i % 3 == 0) together.step();
  }
  together.run();
  for (const auto& [id, answer] : together.answers) {
    EXPECT_EQ(answer.end, "finished");
    EXPECT_EQ(answer.tokens, expected.at(id)) << id;
  }
}

TEST(Engine, KeepsOneCopyOfASegmentThatTwoRequestsComputeAtOnce) {
  std::mt19937 random(23);
  Harness harness(100, 40);
  const std::vector<std::vector<uint32_t>> documents = {random_tokens(random, 100)};
  const auto tail = random_tokens(random, 5);
  // Both believe that they compute it; the second stands in the same batch's remainder.
  harness.generate(harness.make("a", documents, tail, 10));
  harness.generate(harness.make("b", documents, tail, 10));
  harness.run();
  EXPECT_EQ(harness.answers["a"].tokens, harness.answers["b"].tokens);
  EXPECT_EQ(harness.last_load.cached_blocks, 7u);
  EXPECT_EQ(harness.last_load.free_blocks, 93u);
  EXPECT_EQ(harness.last_load.pinned_segments, 0u);
}

TEST(Engine, AsksBeforeItsReservationEndsPausesAndGoesOn) {
  std::mt19937 random(24);
  const auto tail = random_tokens(random, 10);
  Harness plenty(50);
  const auto expected = plenty.run_alone(plenty.make("x", {}, tail, 60, 60)).tokens;

  Harness harness(50);
  harness.generate(harness.make("x", {}, tail, 60, 1));
  for (int i = 0; i < 40; ++i) harness.step();
  // One block holds 16 tokens' KV: 10 of the tail and 6 generated ones; a 7th is known.
  EXPECT_EQ(harness.answers["x"].tokens.size(), 7u);
  EXPECT_GT(harness.answers["x"].need, 0u);
  harness.run();
  EXPECT_EQ(harness.answers["x"].tokens, expected);
  EXPECT_EQ(harness.last_load.free_blocks, 50u);
}

TEST(Engine, EndsWithoutAStopTokenInItsOutput) {
  std::mt19937 random(25);
  Harness harness(50);
  const auto tail = random_tokens(random, 10);
  const auto all = harness.run_alone(harness.make("all", {}, tail, 20)).tokens;
  for (size_t stop = 0; stop < all.size(); ++stop) {
    const size_t first = std::find(all.begin(), all.end(), all[stop]) - all.begin();
    Generate command = harness.make(absl::StrCat("s", stop), {}, tail, 20);
    command.stop_tokens = {all[stop]};
    const auto answer = harness.run_alone(command);
    EXPECT_EQ(answer.tokens, std::vector<uint32_t>(all.begin(), all.begin() + first));
  }
}

TEST(Engine, RefusesCommandsThatContradictThemselvesAndNamesWhy) {
  std::mt19937 random(26);
  Harness harness(50);
  const auto document = random_tokens(random, 20);
  const auto good = harness.make("r", {document, document}, random_tokens(random, 5), 10);
  const auto refused = [&](Generate command, const std::string& words) {
    const auto answer = harness.run_alone(command);
    EXPECT_EQ(answer.end, "invalid");
    EXPECT_NE(answer.message.find(words), std::string::npos) << answer.message;
  };
  auto bad = good;
  bad.tail.clear();
  refused(bad, "tail_tokens");
  bad = good;
  bad.tail[0] = 61;
  refused(bad, "vocabulary");
  bad = good;
  bad.max_tokens = 500;
  refused(bad, "context of 512");
  bad = good;
  bad.max_tokens = 0;
  refused(bad, "max_tokens");
  bad = good;
  bad.sampling.top_p = 0;
  refused(bad, "top_p");
  bad = good;
  bad.sampling.temperature = NAN;
  refused(bad, "temperature");
  bad = good;
  bad.segments[1].id.bytes[0] ^= 1;
  refused(bad, "segments[1].id");
  bad = good;
  bad.segments[0].tokens.clear();
  refused(bad, "segments[0]");
  bad = good;
  bad.reserved_blocks = 4;
  refused(bad, "reserved_blocks is 4");
  bad = good;
  bad.reserved_blocks = 51;
  harness.generate(bad);
  harness.run();
  EXPECT_EQ(harness.answers["r"].end, "invalid");
  EXPECT_EQ(harness.run_alone(good).end, "finished");
  bad = good;
  bad.segments[0].tokens[3] ^= 1;
  refused(bad, "segments[0].tokens");
}

TEST(Engine, NamesMissingSegmentsOrComputesThemWhereTheReservationAllows) {
  std::mt19937 random(27);
  Harness harness(50);
  const std::vector<std::vector<uint32_t>> documents = {random_tokens(random, 20),
                                                        random_tokens(random, 30)};
  auto command = harness.make("r", documents, random_tokens(random, 5), 10);
  const auto expected = harness.run_alone(command).tokens;
  harness.drop(command.segments[1].id);
  command.segments[0].expected_cached = command.segments[1].expected_cached = true;
  command.reserved_blocks = 2;
  const auto failed = harness.run_alone(command);
  EXPECT_EQ(failed.end, "missing");
  EXPECT_EQ(failed.missing, std::vector<SegmentId>{command.segments[1].id});
  command.reserved_blocks = 4;
  const auto answer = harness.run_alone(command);
  EXPECT_EQ(answer.tokens, expected);
  EXPECT_EQ(answer.cached_tokens, 20u);
}

TEST(Engine, EndsWhatAnOlderStreamHadAndShowsWhatIsCached) {
  std::mt19937 random(28);
  Harness harness(60, 32);
  const std::vector<std::vector<uint32_t>> documents = {
      random_tokens(random, 20), random_tokens(random, 30), random_tokens(random, 200)};
  harness.generate(harness.make("r", documents, random_tokens(random, 5), 10));
  for (int i = 0; i < 3; ++i) harness.step();
  harness.reopen();
  EXPECT_FALSE(harness.engine().has_requests());
  ASSERT_EQ(harness.snapshot.size(), 2u);
  EXPECT_EQ(harness.snapshot[0].parent, std::nullopt);
  EXPECT_EQ(harness.snapshot[1].parent, harness.snapshot[0].id);
  EXPECT_EQ(harness.snapshot[1].token_count, 30u);
  EXPECT_EQ(harness.last_load.free_blocks, 56u);
}

// Random commands of a controller that keeps the ledger: whatever is cancelled, preempted, dropped
// or starved, each Generate ends once, the counts agree after every step, and what finishes says
// what it says alone.
TEST(Engine, KeepsTheLedgerOverRandomCommands) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<uint32_t>> documents;
  for (int i = 0; i < 6; ++i) documents.push_back(random_tokens(random, 1 + random() % 50));
  Harness harness(45, 24);
  std::map<std::string, Generate> sent;
  int next = 0;
  for (int round = 0; round < 1500; ++round) {
    const uint32_t choice = random() % 100;
    std::vector<std::string> running;
    for (const auto& [id, answer] : harness.answers) {
      if (answer.end.empty()) running.push_back(id);
    }
    if (choice < 15) {
      std::vector<std::vector<uint32_t>> chain;
      for (uint32_t i = random() % 4; i > 0; --i) chain.push_back(documents[random() % 6]);
      Generate command =
          harness.make(absl::StrCat("g", next++), chain, random_tokens(random, 1 + random() % 20),
                       1 + random() % 30, 1 + random() % 8);
      if (random() % 3 == 0) command.sampling = {0.7f, 0.95f, 0, random()};
      if (command.reserved_blocks > harness.free()) continue;
      sent[command.request_id] = command;
      harness.generate(command);
    } else if (choice < 19 && !running.empty()) {
      harness.send(Cancel{running[random() % running.size()]});
    } else if (choice < 23 && !running.empty()) {
      harness.send(Preempt{running[random() % running.size()]});
    } else if (choice < 33 && !harness.cached().empty()) {
      // A leaf that nobody uses.
      auto it = std::next(harness.cached().begin(), random() % harness.cached().size());
      bool used = false;
      for (const std::string& id : running) {
        for (const SegmentSpec& segment : sent[id].segments) used = used || segment.id == it->first;
      }
      if (!used) harness.drop(it->first);
    } else if (choice < 50) {
      for (const std::string& id : running) {
        const uint32_t need = harness.answers[id].need;
        if (need > 0 && need <= harness.free()) harness.grow(id, need);
      }
    } else {
      harness.step();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  for (auto& [id, answer] : harness.answers) {
    if (answer.end.empty()) harness.send(Cancel{id});
  }
  harness.step();
  EXPECT_FALSE(harness.engine().has_requests());
  EXPECT_EQ(harness.reserved(), 0u);
  EXPECT_EQ(harness.last_load.pinned_segments, 0u);

  int finished = 0;
  for (auto& [id, answer] : harness.answers) {
    EXPECT_NE(answer.end, "");
    EXPECT_NE(answer.end, "invalid") << answer.message;
    if (answer.end != "finished") continue;
    ++finished;
    Generate command = sent[id];
    for (SegmentSpec& segment : command.segments) segment.expected_cached = false;
    command.reserved_blocks = 60;
    Harness alone(60);
    EXPECT_EQ(alone.run_alone(command).tokens, answer.tokens) << id;
  }
  EXPECT_GT(finished, 10);
}

}  // namespace
}  // namespace ragcache::worker
