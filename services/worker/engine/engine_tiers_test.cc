// The engine over two tiers: copies there and back, copies that fail, and the ledger throughout.
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine_harness.h"

namespace ragcache::worker {
namespace {

using Documents = std::vector<std::vector<uint32_t>>;

struct Prompt {
  explicit Prompt(uint32_t seed, std::vector<size_t> lengths = {9, 70, 32}) {
    std::mt19937 random(seed);
    for (const size_t length : lengths) documents.push_back(random_tokens(random, length));
    tail = random_tokens(random, 13);
  }
  Documents documents;
  std::vector<uint32_t> tail;
};

std::vector<SegmentId> ids_of(const Generate& command) {
  std::vector<SegmentId> ids;
  for (const SegmentSpec& segment : command.segments) ids.push_back(segment.id);
  return ids;
}

Generate make(Harness& harness, const std::string& id, const Prompt& prompt,
              uint32_t max_tokens = 12) {
  Generate command = harness.make(id, prompt.documents, prompt.tail, max_tokens);
  command.logprobs = true;
  command.top_logprobs = 20;
  return command;
}

void expect_same_bits(const Harness::Answer& a, const Harness::Answer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob);
    EXPECT_EQ(a.logprobs[i].top_ids, b.logprobs[i].top_ids);
    EXPECT_EQ(a.logprobs[i].top_logprobs, b.logprobs[i].top_logprobs);
  }
}

Harness::Options with_host(bool manual = true) {
  return {.blocks = 60, .host_blocks = 40, .manual = manual};
}

TEST(EngineTiers, AnswerTheSameBitsHoweverTheKvCameToBe) {
  for (const auto kv_type : kernels::kKvTypes) {
    for (const uint32_t batch : {64u, 256u}) {
      const Prompt prompt(41, {9, 150, 32});
      const Prompt other(42, {40, 30});
      const std::string path = testing::TempDir() + absl::StrCat("bits_", getpid());
      std::filesystem::remove(path);
      Harness::Options options{.blocks = 80,
                               .max_batch_tokens = batch,
                               .host_blocks = 40,
                               .arena_path = path,
                               .kv_type = kv_type};
      Harness::Answer cold;
      {
        Harness harness(options);
        cold = harness.run_alone(make(harness, "cold", prompt));
        EXPECT_EQ(cold.cached_tokens, 0u);
        // Beside another request that decodes.
        harness.generate(make(harness, "other", other, 60));
        while (harness.answers["other"].tokens.empty()) harness.step();
        Generate command = make(harness, "device hit", prompt);
        const auto hit = harness.run_alone(command);
        EXPECT_EQ(hit.cached_tokens, 191u);
        expect_same_bits(hit, cold);
        harness.demote(ids_of(command));
        command = make(harness, "host hit", prompt);
        EXPECT_EQ(command.segments[2].expected, Tier::kHost);
        const auto loaded = harness.run_alone(command);
        EXPECT_EQ(loaded.cached_tokens, 0u);
        EXPECT_EQ(loaded.cached_host_tokens, 191u);
        expect_same_bits(loaded, cold);
        // The first on the device, the second on the host, the third nowhere.
        harness.drop(command.segments[2].id);
        harness.drop(command.segments[1].id);
        harness.drop_from_host(command.segments[2].id);
        const auto mixed = harness.run_alone(make(harness, "mixed", prompt));
        EXPECT_EQ(mixed.cached_tokens, 9u);
        EXPECT_EQ(mixed.cached_host_tokens, 150u);
        expect_same_bits(mixed, cold);
        harness.replicate(command.segments[2].id);
        harness.settle();
      }
      Harness harness(options);
      ASSERT_EQ(harness.snapshot.size(), 3u);
      const auto recovered = harness.run_alone(make(harness, "recovered", prompt));
      EXPECT_EQ(recovered.cached_host_tokens, 191u);
      expect_same_bits(recovered, cold);
      std::filesystem::remove(path);
    }
  }
}

TEST(EngineTiers, MoveSegmentsThereAndBackAndTellSo) {
  const Prompt prompt(43);
  Harness harness(with_host());
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  const auto ids = ids_of(make(harness, "x", prompt));
  harness.demote(ids);
  harness.step();
  // Copies are on their way: the count says that the device is free, the pool does not.
  EXPECT_EQ(harness.last_load.free_blocks, 60u);
  EXPECT_EQ(harness.last_load.host_cached_blocks, 8u);
  EXPECT_TRUE(harness.saved().empty());
  harness.settle();
  EXPECT_EQ(harness.saved().size(), 3u);
  EXPECT_EQ(harness.last_load.saved_bytes, 8 * harness.block_bytes());
  // Asked for again, it is told again.
  harness.replicate(ids[0]);
  harness.step();
  EXPECT_EQ(harness.saved().size(), 3u);

  harness.ready.clear();
  const auto hit = harness.run_alone(make(harness, "hit", prompt));
  EXPECT_EQ(hit.tokens, cold.tokens);
  EXPECT_EQ(hit.cached_host_tokens, 111u);
  EXPECT_EQ(hit.cached_tokens, 0u);
  ASSERT_EQ(harness.ready.size(), 3u);
  for (const auto& segment : harness.ready) EXPECT_TRUE(segment.loaded);
  EXPECT_EQ(harness.last_load.cached_blocks, 8u);
  EXPECT_EQ(harness.last_load.host_cached_blocks, 8u);
  EXPECT_EQ(harness.last_load.loaded_bytes, 8 * harness.block_bytes());
  ASSERT_EQ(harness.loads.size(), 1u);
  EXPECT_EQ(harness.loads[0].read.size(), 3u);

  // On both tiers it is used on the device.
  const auto again = harness.run_alone(make(harness, "again", prompt));
  EXPECT_EQ(again.cached_tokens, 111u);
  EXPECT_EQ(again.tokens, cold.tokens);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) harness.drop_from_host(*id);
  harness.settle();
  EXPECT_EQ(harness.last_load.host_free_blocks, 40u);
}

TEST(EngineTiers, GiveBlocksAwayAtOnceAndWaitForThemWhereCopiesLag) {
  const Prompt first(44, {100, 60}), second(45, {150});
  // Room for one of them at a time.
  Harness harness({.blocks = 13, .host_blocks = 40, .manual = true});
  const auto cold = harness.run_alone(make(harness, "cold", first));
  const auto ids = ids_of(make(harness, "x", first));
  harness.demote(ids);
  harness.generate(make(harness, "second", second));
  // One save has ended, the other has not: its blocks are in nobody's hands.
  harness.transfers().advance();
  harness.transfers().held = true;
  for (int i = 0; i < 30; ++i) harness.step();
  EXPECT_EQ(harness.answers["second"].end, "");
  harness.transfers().held = false;
  harness.run();
  EXPECT_EQ(harness.answers["second"].end, "finished");

  // And back: the host's copies are there, the device's blocks come from the second's.
  harness.demote(ids_of(make(harness, "x", second)));
  const auto hit = harness.run_alone(make(harness, "hit", first));
  EXPECT_EQ(hit.cached_host_tokens, 160u);
  EXPECT_EQ(hit.tokens, cold.tokens);
  Harness alone(60);
  EXPECT_EQ(harness.answers["second"].tokens, alone.run_alone(make(alone, "y", second)).tokens);
}

TEST(EngineTiers, WorkWithAHostOfOneBlock) {
  const Prompt prompt(46, {10, 5});
  Harness harness({.blocks = 20, .host_blocks = 1, .manual = true});
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  const auto ids = ids_of(make(harness, "x", prompt));
  harness.replicate(ids[0]);
  harness.drop(ids[1]);
  harness.drop(ids[0]);
  harness.settle();
  // Its one block changes hands while a load of it is still waiting.
  const Prompt other(47, {12});
  harness.generate(make(harness, "hit", prompt));
  harness.drop_from_host(ids[0]);
  harness.run();
  EXPECT_EQ(harness.answers["hit"].tokens, cold.tokens);
  EXPECT_EQ(harness.answers["hit"].cached_host_tokens, 10u);
  harness.run_alone(make(harness, "other", other));
  harness.replicate(make(harness, "x", other).segments[0].id);
  harness.settle();
  EXPECT_EQ(harness.saved().size(), 1u);
  // More than there is: told, and nothing changes.
  harness.send(Replicate{{ids[0]}});
  EXPECT_EQ(harness.run_alone(make(harness, "again", prompt)).tokens, cold.tokens);
  EXPECT_EQ(harness.lost.size(), 1u);
}

TEST(EngineTiers, ComputeWhatIsDamagedAndNeverUseIt) {
  const Prompt prompt(48);
  for (size_t damaged = 0; damaged < 3; ++damaged) {
    for (const int64_t byte : {0, 3000, -1}) {
      Harness harness(with_host());
      const auto cold = harness.run_alone(make(harness, "cold", prompt));
      const auto ids = ids_of(make(harness, "x", prompt));
      harness.demote(ids);
      harness.settle();
      // The copies lie one behind the other, in the order in which they were made.
      const int32_t blocks[] = {0, 1, 6};
      uint8_t* block = harness.arena().block(blocks[damaged]);
      block[byte < 0 ? static_cast<int64_t>(harness.block_bytes()) + byte : byte] ^= 4;
      harness.ready.clear();
      const auto answer = harness.run_alone(make(harness, "r", prompt));
      EXPECT_EQ(answer.tokens, cold.tokens) << "segment " << damaged << ", byte " << byte;
      EXPECT_EQ(answer.cached_host_tokens, 111 - prompt.documents[damaged].size());
      ASSERT_EQ(harness.lost.size(), 1u);
      EXPECT_EQ(harness.lost[0].id, ids[damaged]);
      EXPECT_EQ(harness.last_load.damaged_segments, 1u);
      ASSERT_EQ(harness.ready.size(), 3u);
      for (const auto& segment : harness.ready) {
        EXPECT_EQ(segment.loaded, segment.id != ids[damaged]);
      }
    }
  }
}

TEST(EngineTiers, CompareChecksumsAsOftenAsTheyAreTold) {
  const Prompt prompt(49, {40});
  for (const auto verify :
       {Engine::Verify::kOff, Engine::Verify::kFirst, Engine::Verify::kAlways}) {
    const std::string path = testing::TempDir() + absl::StrCat("verify_", getpid());
    std::filesystem::remove(path);
    Harness::Options options = with_host();
    options.arena_path = path;
    options.verify = verify;
    SegmentId id;
    {
      Harness harness(options);
      harness.run_alone(make(harness, "cold", prompt));
      id = make(harness, "x", prompt).segments[0].id;
      harness.demote({id});
      harness.settle();
      // This process has written it itself.
      harness.arena().checksums(0)[0] ^= 1;
      harness.run_alone(make(harness, "hit", prompt));
      EXPECT_EQ(harness.lost.size(), verify == Engine::Verify::kAlways ? 1u : 0u);
      harness.settle();
    }
    // Where it was found out already, nothing is left.
    Harness harness(options);
    harness.run_alone(make(harness, "recovered", prompt));
    EXPECT_EQ(harness.lost.size(), verify == Engine::Verify::kFirst ? 1u : 0u);
    std::filesystem::remove(path);
  }
}

TEST(EngineTiers, GoOnWhereACopyFailsAtAnyLayer) {
  const Prompt prompt(50);
  for (int64_t layers : {0, 2}) {
    Harness harness(with_host());
    const auto cold = harness.run_alone(make(harness, "cold", prompt));
    const auto ids = ids_of(make(harness, "x", prompt));
    // The second save fails: its copy is lost, the device's stays.
    harness.replicate(ids[0]);
    harness.settle();
    harness.transfers().fails = 1;
    harness.transfers().fails_at = layers;
    harness.replicate(ids[1]);
    harness.settle();
    ASSERT_EQ(harness.lost.size(), 1u);
    EXPECT_EQ(harness.lost[0].id, ids[1]);
    EXPECT_EQ(harness.last_load.host_cached_blocks, 1u);
    harness.replicate(ids[1]);
    harness.replicate(ids[2]);
    harness.settle();
    EXPECT_EQ(harness.saved().size(), 3u);
    for (int i = 2; i >= 0; --i) harness.drop(ids[i]);
    // The load fails: all of it is computed, the copies stay.
    harness.transfers().fails = 1;
    const auto answer = harness.run_alone(make(harness, "r", prompt));
    EXPECT_EQ(answer.tokens, cold.tokens);
    EXPECT_EQ(answer.cached_host_tokens, 0u);
    EXPECT_EQ(harness.lost.size(), 1u);
    EXPECT_EQ(harness.last_load.host_cached_blocks, 8u);
    EXPECT_EQ(harness.last_load.damaged_segments, 0u);
  }
}

TEST(EngineTiers, EndARequestWhoseCopyNeverEndsAndServeTheOthers) {
  const Prompt prompt(51), other(52, {30});
  Harness harness(with_host());
  harness.run_alone(make(harness, "cold", prompt));
  harness.demote(ids_of(make(harness, "x", prompt)));
  harness.settle();
  harness.transfers().held = true;
  // Beside others it is not waited for.
  harness.generate(make(harness, "other", other, 16));
  harness.generate(make(harness, "stuck", prompt));
  while (harness.answers["other"].end.empty()) ASSERT_TRUE(harness.step());
  EXPECT_EQ(harness.answers["stuck"].end, "");
  harness.step();  // alone it is, for as long as the queue's patience lasts
  EXPECT_EQ(harness.answers["stuck"].end, "internal");
  EXPECT_EQ(harness.last_load.free_blocks, 58u);
  // Its blocks come back with the copy's end.
  harness.transfers().held = false;
  harness.settle();
  EXPECT_EQ(harness.run_alone(make(harness, "r", prompt)).end, "finished");
}

TEST(EngineTiers, ForgetWhatIsCancelledDroppedOrReopenedWhileItIsCopied) {
  const Prompt prompt(53);
  Harness harness(with_host());
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  const auto ids = ids_of(make(harness, "x", prompt));
  harness.demote(ids);
  harness.settle();
  // Cancelled while it loads.
  harness.transfers().held = true;
  harness.generate(make(harness, "cancelled", prompt));
  harness.send(Cancel{"cancelled"});
  harness.step();
  EXPECT_EQ(harness.last_load.free_blocks, 60u);
  EXPECT_EQ(harness.last_load.host_cached_blocks, 8u);
  // The same again before the first copy has ended, and the copies dropped beneath it.
  harness.generate(make(harness, "r", prompt));
  harness.drop_from_host(ids[2]);
  harness.transfers().held = false;
  harness.run();
  EXPECT_EQ(harness.answers["r"].tokens, cold.tokens);
  EXPECT_EQ(harness.answers["r"].cached_host_tokens, 111u);
  // Dropped from the host while it is saved, saved once more, and dropped from the device.
  harness.transfers().held = true;
  harness.replicate(ids[2]);
  harness.drop_from_host(ids[2]);
  harness.replicate(ids[2]);
  harness.drop(ids[2]);
  harness.step();
  harness.transfers().held = false;
  harness.settle();
  EXPECT_TRUE(harness.saved().contains(ids[2]));
  EXPECT_EQ(harness.run_alone(make(harness, "again", prompt)).tokens, cold.tokens);

  // A new controller while copies are on their way in both directions.
  for (int i = 2; i >= 0; --i) harness.drop(ids[i]);
  harness.drop_from_host(ids[2]);
  harness.run_alone(make(harness, "refill", prompt));
  harness.drop(ids[2]);
  harness.drop(ids[1]);
  harness.transfers().held = true;
  harness.generate(make(harness, "loading", prompt));
  harness.reopen();
  EXPECT_EQ(harness.snapshot.size(), 2u);
  EXPECT_TRUE(harness.snapshot[0].on_device && harness.snapshot[0].on_host);
  EXPECT_TRUE(!harness.snapshot[1].on_device && harness.snapshot[1].on_host);
  harness.transfers().held = false;
  harness.settle();
  EXPECT_EQ(harness.run_alone(make(harness, "last", prompt)).tokens, cold.tokens);
}

TEST(EngineTiers, ComputeASegmentOfTierNoneThoughTheHostHasIt) {
  const Prompt prompt(54, {40});
  Harness harness(with_host());
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  const auto ids = ids_of(make(harness, "x", prompt));
  harness.demote(ids);
  harness.settle();
  Generate command = make(harness, "r", prompt);
  command.segments[0].expected = Tier::kNone;
  harness.ready.clear();
  const auto answer = harness.run_alone(command);
  EXPECT_EQ(answer.cached_host_tokens, 0u);
  EXPECT_EQ(answer.tokens, cold.tokens);
  ASSERT_EQ(harness.ready.size(), 1u);
  EXPECT_FALSE(harness.ready[0].loaded);
  EXPECT_EQ(harness.last_load.host_cached_blocks, 3u);
  // One that is expected on the host and is not there is computed.
  harness.drop(ids[0]);
  command = make(harness, "gone", prompt);
  harness.drop_from_host(ids[0]);
  EXPECT_EQ(harness.run_alone(command).tokens, cold.tokens);
}

TEST(EngineTiers, LoadASegmentForTwoRequestsAtOnceAndKeepOne) {
  const Prompt prompt(55);
  Harness harness(with_host());
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  harness.demote(ids_of(make(harness, "x", prompt)));
  harness.settle();
  harness.generate(make(harness, "a", prompt));
  harness.generate(make(harness, "b", prompt));
  harness.run();
  EXPECT_EQ(harness.answers["a"].tokens, cold.tokens);
  EXPECT_EQ(harness.answers["b"].tokens, cold.tokens);
  EXPECT_EQ(harness.last_load.cached_blocks, 8u);
  EXPECT_EQ(harness.last_load.free_blocks, 52u);
}

TEST(EngineTiers, LetARunningStreamWaitForNoCopy) {
  const Prompt prompt(56), other(57, {20});
  Harness harness(with_host());
  harness.run_alone(make(harness, "cold", prompt));
  harness.demote(ids_of(make(harness, "x", prompt)));
  harness.settle();
  harness.generate(make(harness, "stream", other, 60));
  while (harness.answers["stream"].tokens.empty()) harness.step();
  harness.transfers().held = true;
  harness.generate(make(harness, "hit", prompt));
  for (int i = 0; i < 5; ++i) {
    const size_t before = harness.answers["stream"].tokens.size();
    harness.step();
    EXPECT_EQ(harness.answers["stream"].tokens.size(), before + 1);
  }
  EXPECT_EQ(harness.answers["hit"].end, "");
  EXPECT_TRUE(harness.loads.empty());
  harness.transfers().held = false;
  harness.transfers().advance();  // the first layers are there: the rest hides behind an iteration
  harness.step();
  EXPECT_EQ(harness.loads.size(), 1u);
  EXPECT_EQ(harness.answers["hit"].cached_host_tokens, 111u);
}

TEST(EngineTiers, CountAndTimeWhatWasCopiedAndNothingElse) {
  const Prompt prompt(59);
  Harness harness(with_host());
  const auto count = [](prometheus::Histogram& seconds) {
    return seconds.Collect().histogram.sample_count;
  };
  harness.run_alone(make(harness, "cold", prompt));
  const auto ids = ids_of(make(harness, "x", prompt));
  harness.demote(ids);
  harness.settle();
  EXPECT_EQ(count(harness.metrics().save_seconds), 3u);
  // Cancelled before it began.
  harness.transfers().held = true;
  harness.generate(make(harness, "cancelled", prompt));
  harness.send(Cancel{"cancelled"});
  harness.step();
  harness.transfers().held = false;
  harness.settle();
  EXPECT_EQ(harness.last_load.loaded_bytes, 0u);
  EXPECT_EQ(count(harness.metrics().load_seconds), 0u);
  // The second of three is damaged: five of eight blocks.
  harness.arena().block(1)[0] ^= 4;
  harness.run_alone(make(harness, "damaged", prompt));
  EXPECT_EQ(harness.last_load.damaged_segments, 1u);
  EXPECT_EQ(harness.last_load.loaded_bytes, 3 * harness.block_bytes());
  EXPECT_EQ(count(harness.metrics().load_seconds), 0u);
  harness.demote(ids);
  harness.settle();
  EXPECT_EQ(count(harness.metrics().save_seconds), 4u);
  harness.run_alone(make(harness, "whole", prompt));
  EXPECT_EQ(harness.last_load.loaded_bytes, (3 + 8) * harness.block_bytes());
  EXPECT_EQ(count(harness.metrics().load_seconds), 1u);
}

TEST(EngineTiers, TimePrefillsInBlocksThatAreFreeAndLeaveNoTrace) {
  const Prompt prompt(58);
  Harness harness(with_host());
  const auto cold = harness.run_alone(make(harness, "cold", prompt));
  for (const uint32_t cached : {0u, 100u, 400u}) {
    EXPECT_TRUE(harness.engine().time_prefill(cached, 40).ok());
  }
  harness.step();
  EXPECT_EQ(harness.run_alone(make(harness, "hit", prompt)).tokens, cold.tokens);
  Harness small(5);
  EXPECT_TRUE(small.engine().time_prefill(400, 80).ok());
  EXPECT_EQ(small.engine().time_prefill(0, 81).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ragcache::worker
