#include "services/retrieval/embed/embedder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <future>
#include <latch>
#include <mutex>
#include <string>
#include <vector>

namespace ragcache::retrieval {
namespace {

using Lane = Embedder::Lane;

class EmbedderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded =
        Embedder::load(std::string(std::getenv("RAG_DEPS_DIR")) + "/models/all-minilm-l6-v2");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    embedder_ = loaded->release();
  }
  static void TearDownTestSuite() { delete embedder_; }

  static std::vector<std::string> long_texts(int count) {
    std::string text;
    for (int i = 0; i < 250; ++i) text += "harbour ";
    return std::vector<std::string>(static_cast<size_t>(count), text);
  }

  static Embedder* embedder_;
};

Embedder* EmbedderTest::embedder_ = nullptr;

TEST_F(EmbedderTest, GivesTheSameVectorsInBothLanes) {
  const std::vector<std::string> texts = {"The lighthouse keeper", "", long_texts(1)[0], "bees"};
  const auto query = embedder_->embed(texts, Lane::kQuery, {});
  const auto ingest = embedder_->embed(texts, Lane::kIngest, {});
  ASSERT_TRUE(query.ok() && ingest.ok());
  ASSERT_EQ(query->vectors.size(), texts.size() * embedder_->dimension());
  EXPECT_EQ(query->tokens, ingest->tokens);
  EXPECT_EQ(query->vectors, ingest->vectors);
  EXPECT_TRUE(embedder_->embed({}, Lane::kIngest, {})->vectors.empty());
}

TEST_F(EmbedderTest, AnswersAQueryBeforeTheIngestThatCameFirst) {
  std::mutex mutex;
  std::vector<std::string> order;
  std::latch both(2);
  const auto note = [&](const std::string& name) {
    return [&, name](absl::StatusOr<Embeddings> result) {
      EXPECT_TRUE(result.ok());
      {
        const std::lock_guard lock(mutex);
        order.push_back(name);
      }
      both.count_down();
    };
  };
  embedder_->submit(long_texts(12), Lane::kIngest, {}, note("ingest"));
  embedder_->submit(std::vector<std::string>{"bees"}, Lane::kQuery, {}, note("query"));
  both.wait();
  EXPECT_EQ(order, (std::vector<std::string>{"query", "ingest"}));
}

TEST_F(EmbedderTest, EndsACancelledIngestAtTheNextSlice) {
  std::stop_source stop;
  std::promise<absl::Status> ended;
  embedder_->submit(long_texts(200), Lane::kIngest, stop.get_token(),
                    [&](absl::StatusOr<Embeddings> result) { ended.set_value(result.status()); });
  // Two slices of the 200 texts are not the whole.
  ASSERT_TRUE(embedder_->embed(std::vector<std::string>{"bees"}, Lane::kQuery, {}).ok());
  stop.request_stop();
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kCancelled);
}

TEST_F(EmbedderTest, EndsEveryJobWhenItStops) {
  auto loaded =
      Embedder::load(std::string(std::getenv("RAG_DEPS_DIR")) + "/models/all-minilm-l6-v2");
  ASSERT_TRUE(loaded.ok());
  std::latch ended(3);
  for (int i = 0; i < 3; ++i) {
    (*loaded)->submit(long_texts(200), Lane::kIngest, {}, [&](absl::StatusOr<Embeddings> result) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
      ended.count_down();
    });
  }
  (*loaded)->stop();
  ended.wait();
  const auto late = (*loaded)->embed(std::vector<std::string>{"bees"}, Lane::kQuery, {});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ragcache::retrieval
