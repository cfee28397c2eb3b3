#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine_harness.h"

namespace ragcache::worker {
namespace {

// Random commands of a controller that keeps the ledger of both tiers, with copies that lag, fail,
// are damaged and stand still: every count agrees after every step, each Generate ends once, and
// what finishes says what it says alone.
TEST(EngineTiers, KeepTheLedgerOverRandomCommandsAndCopies) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<uint32_t>> documents;
  for (int i = 0; i < 5; ++i) documents.push_back(random_tokens(random, 1 + random() % 50));
  Harness harness({.blocks = 45,
                   .max_batch_tokens = 24,
                   .host_blocks = 20,
                   .manual = true,
                   .verify = Engine::Verify::kAlways,
                   .deterministic = random() % 2 == 0});
  std::map<std::string, Generate> sent;
  int next = 0;
  const auto pick = [&](const std::map<SegmentId, uint32_t>& from) {
    return std::next(from.begin(), random() % from.size())->first;
  };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t choice = random() % 100;
    std::vector<std::string> running;
    for (const auto& [id, answer] : harness.answers) {
      if (answer.end.empty()) running.push_back(id);
    }
    const auto used = [&](const SegmentId& id) {
      for (const std::string& name : running) {
        for (const SegmentSpec& segment : sent[name].segments) {
          if (segment.id == id) return true;
        }
      }
      return false;
    };
    if (choice < 12) {
      std::vector<std::vector<uint32_t>> chain;
      for (uint32_t i = random() % 4; i > 0; --i) chain.push_back(documents[random() % 5]);
      Generate command =
          harness.make(absl::StrCat("g", next++), chain, random_tokens(random, 1 + random() % 20),
                       1 + random() % 20, 1 + random() % 8);
      if (command.reserved_blocks > harness.free()) continue;
      sent[command.request_id] = command;
      harness.generate(command);
    } else if (choice < 15 && !running.empty()) {
      harness.send(Cancel{running[random() % running.size()]});
    } else if (choice < 17 && !running.empty()) {
      harness.send(Preempt{running[random() % running.size()]});
    } else if (choice < 25 && !harness.cached().empty()) {
      const SegmentId id = pick(harness.cached());
      if (!used(id)) harness.drop(id);
    } else if (choice < 35 && !harness.cached().empty()) {
      const SegmentId id = pick(harness.cached());
      if (harness.on_host().contains(id) || harness.cached().at(id) <= harness.host_free()) {
        harness.replicate(id);
        if (random() % 2 == 0 && !used(id)) harness.drop(id);
      }
    } else if (choice < 39 && !harness.on_host().empty()) {
      harness.drop_from_host(pick(harness.on_host()));
    } else if (choice < 50) {
      for (const std::string& id : running) {
        const uint32_t need = harness.answers[id].need;
        if (need > 0 && need <= harness.free()) harness.grow(id, need);
      }
    } else if (choice < 60) {
      harness.transfers().advance();
    } else if (choice < 62) {
      harness.transfers().fails = 1;
      harness.transfers().fails_at = 2 * (random() % 2);
    } else if (choice < 64) {
      harness.arena().block(static_cast<int32_t>(random() % 20))[random() % 1000] ^= 1;
    } else if (choice < 65) {
      harness.transfers().held = random() % 2 == 0;
    } else if (choice < 66 && random() % 10 == 0) {
      harness.reopen();
    } else {
      harness.step();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  harness.transfers().held = false;
  for (auto& [id, answer] : harness.answers) {
    if (answer.end.empty()) harness.send(Cancel{id});
  }
  harness.step();
  harness.settle();
  EXPECT_FALSE(harness.engine().has_requests());
  EXPECT_EQ(harness.reserved(), 0u);
  EXPECT_EQ(harness.last_load.pinned_segments, 0u);
  EXPECT_EQ(harness.transfers().waiting(), 0u);

  int finished = 0;
  for (auto& [id, answer] : harness.answers) {
    EXPECT_NE(answer.end, "");
    EXPECT_NE(answer.end, "invalid") << answer.message;
    EXPECT_NE(answer.end, "missing");
    if (answer.end != "finished") continue;
    ++finished;
    Generate command = sent[id];
    for (SegmentSpec& segment : command.segments) segment.expected = Tier::kNone;
    command.reserved_blocks = 60;
    Harness alone(60);
    EXPECT_EQ(alone.run_alone(command).tokens, answer.tokens) << id;
  }
  std::printf("%d finished, %zu copies lost\n", finished, harness.lost.size());
}

}  // namespace
}  // namespace ragcache::worker
