#include "services/worker/engine/engine.h"

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine_harness.h"
#include "services/worker/engine/engine_random.h"

namespace ragcache::worker {
namespace {

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
  bad.sampling.min_p = 1.5;
  refused(bad, "min_p is 1.5, must be from 0 to 1");
  bad = good;
  bad.sampling.presence_penalty = 2.5;
  refused(bad, "presence_penalty");
  bad = good;
  bad.sampling.frequency_penalty = NAN;
  refused(bad, "frequency_penalty");
  bad = good;
  bad.sampling.repetition_penalty = -1;
  refused(bad, "repetition_penalty");
  bad = good;
  bad.sampling.logit_bias = {{61, 1}};
  refused(bad, "logit_bias has the id 61, the vocabulary has 61");
  bad = good;
  bad.sampling.logit_bias = {{60, 101}};
  refused(bad, "logit_bias is 101");
  bad = good;
  bad.logprobs = true;
  bad.top_logprobs = 21;
  refused(bad, "top_logprobs is 21, at most 20");
  bad = good;
  bad.top_logprobs = 1;
  refused(bad, "without logprobs");
  bad = good;
  bad.answer_tokens = 5;
  refused(bad, "at least one must be the prompt's");
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
  command.segments[0].expected = command.segments[1].expected = Tier::kDevice;
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

TEST(Engine, GoesOnBehindAnAnswersBeginningAsIfItHadNeverStopped) {
  std::mt19937 random(29);
  Harness harness(50);
  const auto document = random_tokens(random, 20);
  const auto tail = random_tokens(random, 7);
  auto whole = harness.make("whole", {document}, tail, 24);
  whole.sampling = {.temperature = 0.9f,
                    .seed = 77,
                    .presence_penalty = 0.7f,
                    .frequency_penalty = 0.9f,
                    .repetition_penalty = 1.4f,
                    .logit_bias = {{3, 2.0f}}};
  whole.logprobs = true;
  const auto expected = harness.run_alone(whole);
  ASSERT_EQ(expected.tokens.size(), 24u);
  for (const size_t had : {1, 5, 23}) {
    auto tail_so_far = tail;
    tail_so_far.insert(tail_so_far.end(), expected.tokens.begin(), expected.tokens.begin() + had);
    auto rest = harness.make(absl::StrCat("rest", had), {document}, tail_so_far, 24 - had);
    rest.sampling = whole.sampling;
    rest.logprobs = true;
    rest.answer_tokens = had;
    const auto answer = harness.run_alone(rest);
    EXPECT_EQ(answer.tokens,
              std::vector<uint32_t>(expected.tokens.begin() + had, expected.tokens.end()));
    ASSERT_EQ(answer.logprobs.size(), 24 - had);
    EXPECT_NEAR(answer.logprobs[0].logprob, expected.logprobs[had].logprob, 1e-4);
  }
  // The same tokens as a prompt are not penalised as an answer's, so it goes on otherwise.
  auto tail_so_far = tail;
  tail_so_far.insert(tail_so_far.end(), expected.tokens.begin(), expected.tokens.begin() + 12);
  auto prompt = harness.make("prompt", {document}, tail_so_far, 12);
  prompt.sampling = whole.sampling;
  EXPECT_NE(harness.run_alone(prompt).tokens,
            std::vector<uint32_t>(expected.tokens.begin() + 12, expected.tokens.end()));
}

TEST(Engine, TellsLogprobsOfEachTokenWhereAskedFor) {
  std::mt19937 random(30);
  Harness harness(50);
  auto command = harness.make("r", {}, random_tokens(random, 9), 6);
  command.logprobs = true;
  command.top_logprobs = 3;
  const auto answer = harness.run_alone(command);
  ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const TokenLogprob& logprob = answer.logprobs[i];
    ASSERT_EQ(logprob.top_ids.size(), 3u);
    EXPECT_EQ(logprob.top_ids[0], answer.tokens[i]);  // greedy
    EXPECT_EQ(logprob.top_logprobs[0], logprob.logprob);
    EXPECT_GE(logprob.top_logprobs[1], logprob.top_logprobs[2]);
    EXPECT_LE(logprob.logprob, 0);
  }
}

TEST(Engine, KeepsStreamsGoingWhileALongPromptEnters) {
  std::mt19937 random(31);
  Harness harness(200, 256);
  harness.generate(harness.make("a", {}, random_tokens(random, 30), 200, 200));
  harness.generate(harness.make("b", {}, random_tokens(random, 100), 200, 200));
  while (harness.answers["b"].tokens.empty()) harness.step();
  harness.generate(
      harness.make("long", {random_tokens(random, 300)}, random_tokens(random, 150), 1));
  int iterations = 0;
  while (harness.answers["long"].tokens.empty()) {
    const size_t streamed = harness.answers["a"].tokens.size();
    const Duration start = harness.elapsed();
    ASSERT_TRUE(harness.step());
    EXPECT_LE(harness.elapsed() - start, std::chrono::milliseconds(200));
    EXPECT_EQ(harness.answers["a"].tokens.size(), streamed + 1);
    ++iterations;
  }
  // 200 ms are 50 tokens here, 32 of them a prompt's: nine tenths, whole blocks, beside two
  // streams.
  EXPECT_LE(iterations, 450 / 32 + 2);
  EXPECT_GE(iterations, 450 / 48);
  for (const char* id : {"a", "b"}) harness.send(Cancel{id});
  harness.run();
  // Nobody waits: a second is 250 tokens here.
  harness.generate(
      harness.make("alone", {random_tokens(random, 300)}, random_tokens(random, 9), 1));
  for (int i = 0; i < 2; ++i) harness.step();
  EXPECT_EQ(harness.answers["alone"].tokens.size(), 1u);
}

// Random commands of a controller that keeps the ledger: whatever is cancelled, preempted, dropped
// or starved, each Generate ends once, the counts agree after every step, and what finishes says
// what it says alone.
TEST(Engine, KeepsTheLedgerOverRandomCommands) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Harness harness(45, 24);
  RandomController controller(harness, random);
  for (int round = 0; round < 1500; ++round) {
    const uint32_t choice = random() % 100;
    if (choice < 15) {
      controller.generate();
    } else if (choice < 19) {
      controller.end_one<Cancel>();
    } else if (choice < 23) {
      controller.end_one<Preempt>();
    } else if (choice < 33) {
      controller.drop();
    } else if (choice < 50) {
      controller.grow();
    } else {
      harness.step();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GT(controller.end_all(), 10u);
}

}  // namespace
}  // namespace ragcache::worker
