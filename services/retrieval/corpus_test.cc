#include "services/retrieval/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/tokenizer/testing.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;

class CorpusTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded =
        Embedder::load(std::string(std::getenv("RAG_DEPS_DIR")) + "/models/all-minilm-l6-v2");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    embedder_ = loaded->release();
  }
  static void TearDownTestSuite() { delete embedder_; }

  void SetUp() override {
    folder_ = ::testing::TempDir() + "corpus_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    format_ = PromptFormat::create(TinyVocabulary().load().value()).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Corpus> open(const std::string& folder) {
    const IndexOptions index = {.kind = IndexOptions::Kind::kAuto,
                                .dimension = embedder_->dimension()};
    auto corpus = Corpus::open(folder, index, 2, format_, *embedder_);
    EXPECT_TRUE(corpus.ok()) << corpus.status();
    return *std::move(corpus);
  }

  static Corpus::Ingested upsert(Corpus& corpus, const std::vector<DocumentText>& documents) {
    const auto ingested = corpus.upsert(documents, {});
    EXPECT_TRUE(ingested.ok()) << ingested.status();
    return *ingested;
  }

  static std::vector<std::string> search(Corpus& corpus, const std::string& query, size_t k) {
    const auto embedded = embedder_->embed(std::vector{query}, Embedder::Lane::kQuery, {});
    const auto found = corpus.search(embedded->vectors, k);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> ids;
    for (const FoundDocument& document : *found) ids.push_back(document.document.id);
    return ids;
  }

  static Embedder* embedder_;
  std::string folder_;
  std::shared_ptr<const PromptFormat> format_;
};

Embedder* CorpusTest::embedder_ = nullptr;

const std::vector<DocumentText> kDocuments = {
    {"bees", "Bees", "Honey bees dance to tell where flowers are."},
    {"tides", "Tides", "The moon pulls the sea and makes the tide."},
    {"bread", "Bread", "Yeast makes the dough rise before it is baked."}};

TEST_F(CorpusTest, FindsAfterACrashWhatWasAcknowledged) {
  const std::string crashed = folder_ + "_crashed";
  {
    auto corpus = open(folder_);
    upsert(*corpus, kDocuments);
    ASSERT_TRUE(corpus->save().ok());
    // Since the index was saved: one new, one replaced, one erased.
    upsert(*corpus, {{"stars", "Stars", "A telescope shows the rings of Saturn."},
                     {"bees", "Bees", "A hive in winter keeps its queen warm."}});
    ASSERT_EQ(corpus->erase(std::vector<std::string>{"bread"}).value(), 1u);
    // What a kill would leave behind.
    std::filesystem::copy(folder_, crashed, std::filesystem::copy_options::recursive);
  }
  auto corpus = open(crashed);
  EXPECT_EQ(corpus->store().document_count(), 3u);
  EXPECT_EQ(search(*corpus, "rings around a planet", 1), std::vector<std::string>{"stars"});
  EXPECT_EQ(search(*corpus, "insects in the cold season", 1), std::vector<std::string>{"bees"});
  EXPECT_THAT(search(*corpus, "baking", 10), ::testing::SizeIs(3));
  corpus.reset();
  std::filesystem::remove_all(crashed);
}

TEST_F(CorpusTest, RebuildsADamagedOrMissingIndexFromTheStore) {
  {
    auto corpus = open(folder_);
    upsert(*corpus, kDocuments);
    ASSERT_TRUE(corpus->save().ok());
  }
  std::ofstream(folder_ + "/vectors.index", std::ios::app) << "x";
  EXPECT_EQ(search(*open(folder_), "the moon", 1), std::vector<std::string>{"tides"});
  std::filesystem::remove(folder_ + "/vectors.index");
  EXPECT_EQ(search(*open(folder_), "the moon", 1), std::vector<std::string>{"tides"});
}

// A store that begins anew counts its vectors from 1 again: the old index would fit by number.
TEST_F(CorpusTest, DoesNotUseTheIndexOfAnotherStore) {
  {
    auto corpus = open(folder_);
    upsert(*corpus, kDocuments);
    ASSERT_TRUE(corpus->save().ok());
  }
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(folder_ + "/documents.db" + suffix);
  }
  {
    auto corpus = open(folder_);
    EXPECT_THAT(search(*corpus, "the moon", 3), ::testing::IsEmpty());
    upsert(*corpus, {kDocuments[1], kDocuments[2], kDocuments[0]});
    EXPECT_EQ(search(*corpus, "the moon", 1), std::vector<std::string>{"tides"});
  }
}

TEST_F(CorpusTest, TokenisesAnewForAnotherModel) {
  {
    auto corpus = open(folder_);
    upsert(*corpus, {{"a", "", "abc"}, {"b", "a", "c"}});
  }
  TinyVocabulary other;
  other.merges = {"a b"};
  format_ = PromptFormat::create(other.load().value()).value();
  auto corpus = open(folder_);
  EXPECT_EQ(corpus->store().stale_count().value(), 0u);
  const auto records =
      corpus->store().find_by_id(corpus->number(), std::vector<std::string>{"a", "b"}).value();
  EXPECT_EQ(records[0][0].segment_tokens, format_->document("", "abc"));
  EXPECT_EQ(records[1][0].segment_tokens, format_->document("a", "c"));
  EXPECT_EQ(records[1][0].token_digest, digest_of_tokens(records[1][0].segment_tokens));
  EXPECT_THAT(search(*corpus, "abc", 2), ::testing::SizeIs(2));
}

TEST_F(CorpusTest, TakesTheLaterOfTwoAndSkipsWhatIsThere) {
  auto corpus = open(folder_);
  const auto first = upsert(*corpus, {{"a", "", "the first text"}, {"a", "", "the second text"}});
  EXPECT_EQ(first.documents, 2u);
  EXPECT_GT(first.tokens, 0u);
  EXPECT_EQ(corpus->store()
                .find_by_id(corpus->number(), std::vector<std::string>{"a"})
                .value()[0][0]
                .text,
            "the second text");
  const auto again = upsert(*corpus, {{"a", "", "the second text"}});
  EXPECT_EQ(again.documents, 1u);
  EXPECT_EQ(again.tokens, 0u);
  EXPECT_EQ(corpus->store().document_count(), 1u);
}

TEST_F(CorpusTest, TakesTheLaterAlsoWhenItIsWhatIsStored) {
  auto corpus = open(folder_);
  upsert(*corpus, {{"a", "", "stored"}});
  upsert(*corpus, {{"a", "", "another"}, {"a", "", "stored"}});
  EXPECT_EQ(corpus->store()
                .find_by_id(corpus->number(), std::vector<std::string>{"a"})
                .value()[0][0]
                .text,
            "stored");
}

TEST_F(CorpusTest, OrdersEqualScoresById) {
  auto corpus = open(folder_);
  upsert(*corpus, {{"c", "", "twin"},
                   {"a", "", "twin"},
                   {"d", "", "twin"},
                   {"b", "", "twin"},
                   {"e", "", "something else"}});
  EXPECT_THAT(search(*corpus, "twin", 2), ElementsAre("a", "b"));
  EXPECT_THAT(search(*corpus, "twin", 9), ElementsAre("a", "b", "c", "d", "e"));
}

}  // namespace
}  // namespace ragcache::retrieval
