#include <random>

#include "gtest/gtest.h"
#include "services/worker/engine/engine_random.h"

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
  Harness harness({.blocks = 45,
                   .max_batch_tokens = 24,
                   .host_blocks = 20,
                   .manual = true,
                   .verify = Engine::Verify::kAlways});
  RandomController controller(harness, random);
  for (int round = 0; round < 3000; ++round) {
    const uint32_t choice = random() % 100;
    if (choice < 12) {
      controller.generate();
    } else if (choice < 15) {
      controller.end_one<Cancel>();
    } else if (choice < 17) {
      controller.end_one<Preempt>();
    } else if (choice < 25) {
      controller.drop();
    } else if (choice < 35) {
      controller.replicate();
    } else if (choice < 39) {
      controller.drop_from_host();
    } else if (choice < 50) {
      controller.grow();
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
  const size_t finished = controller.end_all();
  EXPECT_EQ(harness.transfers().waiting(), 0u);
  std::printf("%zu finished, %zu copies lost\n", finished, harness.lost.size());
}

}  // namespace
}  // namespace ragcache::worker
