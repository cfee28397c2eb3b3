#include "services/retrieval/corpora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/tokenizer/testing.h"
#include "services/retrieval/shard/local_shard.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// While it is there, this process can write to no file.
class FullDisk {
 public:
  FullDisk() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &limit_), 0);
    rlimit none = limit_;
    none.rlim_cur = 0;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit limit_ = {};
};

// Makes a change only when the router next asks what it has, which it does every second.
class LateShard final : public Shard {
 public:
  explicit LateShard(std::shared_ptr<Shard> shard) : shard_(std::move(shard)) {}

  // Until a change has come.
  void wait_for_change() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return change_.has_value(); });
  }

  void bind(const ShardBinding& binding, Duration timeout,
            Done<std::vector<IndexState>> done) override {
    std::optional<Change> change;
    {
      const std::lock_guard lock(mutex_);
      change.swap(change_);
    }
    shard_->bind(binding, timeout, std::move(done));
    if (change.has_value()) {
      shard_->apply(std::move(change->batch), change->timeout, std::move(change->done));
    }
  }
  void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
              Done<IndexState> done) override {
    shard_->create(key, std::move(spec), timeout, std::move(done));
  }
  void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) override {
    shard_->drop(key, timeout, std::move(done));
  }
  void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) override {
    const std::lock_guard lock(mutex_);
    change_.emplace(std::move(batch), timeout, std::move(done));
    changed_.notify_all();
  }
  void search(std::shared_ptr<const ShardQuery> query, Duration timeout, std::stop_token stop,
              Done<ShardHits> done) override {
    shard_->search(std::move(query), timeout, std::move(stop), std::move(done));
  }

 private:
  struct Change {
    Change(ChangeBatch batch_in, Duration timeout_in, Done<IndexState> done_in)
        : batch(std::move(batch_in)), timeout(timeout_in), done(std::move(done_in)) {}

    ChangeBatch batch;
    Duration timeout;
    Done<IndexState> done;
  };

  const std::shared_ptr<Shard> shard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Change> change_;  // guarded by mutex_
};

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

  // Corpora with the one shard of their process.
  struct Opened {
    boost::asio::thread_pool pool{2};
    prometheus::Registry registry;
    std::shared_ptr<LocalShard> shard;
    std::unique_ptr<Corpora> corpora;
  };

  std::shared_ptr<Corpora> open_all(const std::string& folder, const ChunkOptions& chunk = {}) {
    auto opened = std::make_shared<Opened>();
    auto shard =
        LocalShard::open({.folder = folder + "/shard", .replace_foreign = true}, opened->pool);
    EXPECT_TRUE(shard.ok()) << shard.status();
    opened->shard = *std::move(shard);
    std::shared_ptr<Shard> endpoint = opened->shard;
    if (is_late_) {
      auto late = std::make_shared<LateShard>(std::move(endpoint));
      late_ = late.get();
      endpoint = std::move(late);
    }
    const Corpora::Options options = {
        .index = {.kind = IndexOptions::Kind::kAuto, .dimension = embedder_->dimension()},
        .chunk = chunk,
        .readers = 4};
    auto corpora = Corpora::open(folder, options, format_, *embedder_, {{{"shard", endpoint}}},
                                 opened->pool, opened->registry);
    EXPECT_TRUE(corpora.ok()) << corpora.status();
    opened->corpora = *std::move(corpora);
    EXPECT_TRUE(opened->corpora->router().wait_until_ready(std::chrono::seconds(60)).ok());
    shard_ = opened->shard;
    return {opened, opened->corpora.get()};
  }

  // Saves the indexes of what was opened last.
  void save() { shard_.lock()->save(); }

  std::vector<std::filesystem::path> index_files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/shard")) {
      if (entry.path().extension() == ".index") files.push_back(entry.path());
    }
    return files;
  }

  // The default corpus, which keeps the others open too.
  std::shared_ptr<Corpus> open(const std::string& folder) {
    std::shared_ptr<Corpora> corpora = open_all(folder);
    Corpus* const corpus = corpora->find("").value().get();
    return {std::move(corpora), corpus};
  }

  static std::vector<DocumentRecord> get(Corpora& corpora, const Corpus& corpus,
                                         const std::string& id) {
    const auto found = corpora.store().find_by_id(corpus.number(), std::vector{id});
    EXPECT_TRUE(found.ok()) << found.status();
    return found->at(0);
  }

  static Corpus::Ingested upsert(Corpus& corpus, const std::vector<DocumentText>& documents) {
    const auto ingested = corpus.upsert(documents, {});
    EXPECT_TRUE(ingested.ok()) << ingested.status();
    return *ingested;
  }

  static std::vector<std::string> search(Corpus& corpus, const std::string& query, size_t k,
                                         const Filter& filter = {}) {
    const auto embedded = embedder_->embed(std::vector{query}, Embedder::Lane::kQuery, {});
    std::promise<absl::StatusOr<std::vector<FoundDocument>>> searched;
    corpus.search(embedded->vectors, k, filter, std::chrono::seconds(30), {},
                  [&searched](auto result) { searched.set_value(std::move(result)); });
    const auto found = searched.get_future().get();
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> ids;
    for (const FoundDocument& document : *found) ids.push_back(document.document.id);
    return ids;
  }

  static Embedder* embedder_;
  std::string folder_;
  std::shared_ptr<const PromptFormat> format_;
  std::weak_ptr<LocalShard> shard_;
  bool is_late_ = false;  // the shard of what is opened from here on
  LateShard* late_ = nullptr;
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
    save();
    // Since the index was saved: one new, one replaced, one erased.
    upsert(*corpus, {{"stars", "Stars", "A telescope shows the rings of Saturn."},
                     {"bees", "Bees", "A hive in winter keeps its queen warm."}});
    ASSERT_EQ(corpus->erase(std::vector<std::string>{"bread"}).value(), 1u);
    // What a kill would leave behind.
    std::filesystem::copy(folder_, crashed, std::filesystem::copy_options::recursive);
  }
  auto corpus = open(crashed);
  EXPECT_EQ(corpus->record().documents, 3u);
  EXPECT_EQ(search(*corpus, "rings around a planet", 1), std::vector<std::string>{"stars"});
  EXPECT_EQ(search(*corpus, "insects in the cold season", 1), std::vector<std::string>{"bees"});
  EXPECT_THAT(search(*corpus, "baking", 10), SizeIs(3));
  corpus.reset();
  std::filesystem::remove_all(crashed);
}

TEST_F(CorpusTest, RebuildsADamagedOrMissingIndexFromTheStore) {
  {
    auto corpus = open(folder_);
    upsert(*corpus, kDocuments);
    save();
  }
  ASSERT_THAT(index_files(), SizeIs(1));
  std::ofstream(index_files()[0], std::ios::app) << "x";
  EXPECT_EQ(search(*open(folder_), "the moon", 1), std::vector<std::string>{"tides"});
  std::filesystem::remove_all(folder_ + "/shard");
  EXPECT_EQ(search(*open(folder_), "the moon", 1), std::vector<std::string>{"tides"});
}

// A store that begins anew counts its vectors from 1 again: the old index would fit by number.
TEST_F(CorpusTest, RemovesTheIndexFilesOfEarlierVersions) {
  upsert(*open(folder_), kDocuments);
  for (const char* name : {"/vectors.index", "/vectors-12.index"}) {
    std::ofstream(folder_ + name) << "old";
  }
  EXPECT_THAT(search(*open(folder_), "sea", 3), SizeIs(3));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/vectors.index"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/vectors-12.index"));
}

TEST_F(CorpusTest, DoesNotUseTheIndexOfAnotherStore) {
  {
    auto corpus = open(folder_);
    upsert(*corpus, kDocuments);
    save();
  }
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(folder_ + "/documents.db" + suffix);
  }
  {
    auto corpus = open(folder_);
    EXPECT_THAT(search(*corpus, "the moon", 3), IsEmpty());
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
  auto corpora = open_all(folder_);
  EXPECT_EQ(corpora->store().stale_count().value(), 0u);
  const auto corpus = corpora->find("").value();
  EXPECT_EQ(get(*corpora, *corpus, "a").at(0).segment_tokens, format_->document("", "abc"));
  const DocumentRecord b = get(*corpora, *corpus, "b").at(0);
  EXPECT_EQ(b.segment_tokens, format_->document("a", "c"));
  EXPECT_EQ(b.token_digest, digest_of_tokens(b.segment_tokens));
  EXPECT_THAT(search(*corpus, "abc", 2), SizeIs(2));
}

TEST_F(CorpusTest, TakesTheLaterOfTwoAndSkipsWhatIsThere) {
  auto corpora = open_all(folder_);
  const auto corpus = corpora->find("").value();
  const auto first = upsert(*corpus, {{"a", "", "the first text"}, {"a", "", "the second text"}});
  EXPECT_EQ(first.documents, 2u);
  EXPECT_EQ(first.pieces, 1u);
  EXPECT_GT(first.tokens, 0u);
  EXPECT_EQ(get(*corpora, *corpus, "a").at(0).text, "the second text");
  const auto again = upsert(*corpus, {{"a", "", "the second text"}});
  EXPECT_EQ(again.documents, 1u);
  EXPECT_EQ(again.pieces, 1u);
  EXPECT_EQ(again.tokens, 0u);
  EXPECT_EQ(corpus->record().documents, 1u);
  // Also when the later is what is stored.
  upsert(*corpus, {{"a", "", "another"}, {"a", "", "the second text"}});
  EXPECT_EQ(get(*corpora, *corpus, "a").at(0).text, "the second text");
}

// The second call stores nothing, but what the first one stored is not found yet.
TEST_F(CorpusTest, FindsWhatIsAcknowledgedThoughAnotherCallHasStoredIt) {
  is_late_ = true;
  auto corpus = open(folder_);
  auto first = std::async(std::launch::async, [&] { return corpus->upsert(kDocuments, {}); });
  late_->wait_for_change();
  EXPECT_EQ(upsert(*corpus, kDocuments).tokens, 0u);
  EXPECT_THAT(search(*corpus, "the moon", 9), SizeIs(3));
  EXPECT_TRUE(first.get().ok());
}

TEST_F(CorpusTest, FindsThePiecesOfALongDocumentAndReplacesThemTogether) {
  const std::string text =
      "The moon pulls the sea and makes the tide. Yeast makes the dough rise in the oven. "
      "A hive in winter keeps its queen warm.";
  const ChunkOptions chunk = {.max_tokens = 18, .overlap_tokens = 0};  // room for one sentence
  format_ = PromptFormat::create(demo_tokenizer()).value();
  auto corpora = open_all(folder_, chunk);
  auto corpus = corpora->find("").value();
  EXPECT_EQ(upsert(*corpus, {{"long", "", text}, {"bees", "", "Bees dance."}}).pieces, 4u);
  EXPECT_EQ(corpus->record().documents, 2u);
  EXPECT_EQ(corpus->record().pieces, 4u);
  EXPECT_EQ(search(*corpus, "baking bread", 1), std::vector<std::string>{"long#2"});
  EXPECT_EQ(search(*corpus, "insects in the cold season", 1), std::vector<std::string>{"long#3"});
  EXPECT_EQ(upsert(*corpus, {{"long", "", text}}).tokens, 0u);

  EXPECT_EQ(corpus->erase(std::vector<std::string>{"long#2"}).value(), 0u);
  upsert(*corpus, {{"long", "", "A telescope shows the rings of Saturn."}});
  EXPECT_THAT(search(*corpus, "baking bread", 9), UnorderedElementsAre("long", "bees"));
  EXPECT_EQ(corpus->erase(std::vector<std::string>{"long"}).value(), 1u);
  EXPECT_THAT(search(*corpus, "baking bread", 9), ElementsAre("bees"));

  // Another tokenizer cuts at other places.
  upsert(*corpus, {{"long", "", text}});
  corpus.reset();
  corpora.reset();
  format_ = PromptFormat::create(TinyVocabulary().load().value()).value();
  corpora = open_all(folder_, chunk);
  std::string joined;
  for (const DocumentRecord& piece : get(*corpora, *corpora->find("").value(), "long")) {
    EXPECT_EQ(piece.segment_tokens, format_->document("", piece.text));
    joined += piece.text;
  }
  EXPECT_EQ(joined, text);
}

TEST_F(CorpusTest, FindsOnlyWhatTheFilterAllows) {
  const auto only = [](const std::string& field, Filter::Operator op, const MetadataValue& value) {
    return Filter{.conditions = {{field, op, {value}}}};
  };
  const auto check = [&](Corpus& corpus) {
    const Filter german = only("lang", Filter::Operator::kIn, std::string("de"));
    EXPECT_THAT(search(corpus, "the sea", 9, german), ElementsAre("bees"));
    EXPECT_THAT(search(corpus, "the sea", 9, only("year", Filter::Operator::kGreater, 1995.0)),
                ElementsAre("tides"));
    EXPECT_THAT(search(corpus, "the sea", 1, only("year", Filter::Operator::kExists, false)),
                ElementsAre("bread"));
    EXPECT_THAT(search(corpus, "the sea", 9, only("none", Filter::Operator::kExists, true)),
                IsEmpty());
  };
  {
    auto corpus = open(folder_);
    std::vector<DocumentText> documents = kDocuments;
    documents[0].metadata = R"({"lang":"de","year":1990})";
    documents[1].metadata = R"({"lang":["en","fr"],"year":2000})";
    upsert(*corpus, documents);
    check(*corpus);
  }
  auto corpus = open(folder_);
  check(*corpus);
  // Other metadata alone are another version.
  DocumentText bees = kDocuments[0];
  bees.metadata = R"({"lang":"en"})";
  upsert(*corpus, {bees});
  EXPECT_THAT(search(*corpus, "x", 9, only("lang", Filter::Operator::kIn, std::string("en"))),
              UnorderedElementsAre("bees", "tides"));
  EXPECT_EQ(corpus->erase(std::vector<std::string>{"bees"}).value(), 1u);
  EXPECT_THAT(search(*corpus, "x", 9, only("lang", Filter::Operator::kIn, std::string("en"))),
              ElementsAre("tides"));
}

// What comes next gets the vectors of what could not be committed.
TEST_F(CorpusTest, ForgetsTheMetadataOfWhatCouldNotBeCommitted) {
  auto corpus = open(folder_);
  DocumentText bees = kDocuments[0];
  bees.metadata = R"({"lang":"de"})";
  const auto expect_full = [&] {
    const FullDisk full;
    EXPECT_EQ(corpus->upsert(std::vector{bees}, {}).status().code(),
              absl::StatusCode::kUnavailable);
  };
  const Filter german = {.conditions = {{"lang", Filter::Operator::kIn, {std::string("de")}}}};
  expect_full();
  upsert(*corpus, {kDocuments[1]});
  EXPECT_THAT(search(*corpus, "x", 9, german), IsEmpty());
  expect_full();
  upsert(*corpus, {bees});
  EXPECT_THAT(search(*corpus, "x", 9, german), ElementsAre("bees"));
}

TEST_F(CorpusTest, KeepsCorporaApartAndOverARestart) {
  const CorpusSettings shared = {.cache_scope = CacheScope::kShared, .chunk_tokens = 0};
  {
    auto corpora = open_all(folder_);
    const auto notes = corpora->create("notes", shared).value();
    EXPECT_EQ(corpora->create("notes", shared).value(), notes);
    EXPECT_EQ(corpora->create("notes", {}).status().code(), absl::StatusCode::kAlreadyExists);
    upsert(*corpora->find("default").value(), {kDocuments[0]});
    upsert(*notes, {kDocuments[1]});
    save();
  }
  auto corpora = open_all(folder_);
  const auto notes = corpora->find("notes").value();
  EXPECT_EQ(notes->settings(), shared);
  EXPECT_THAT(search(*notes, "anything", 9), ElementsAre("tides"));
  EXPECT_THAT(search(*corpora->find("").value(), "anything", 9), ElementsAre("bees"));
  EXPECT_EQ(corpora->remove("notes").value(), 1u);
  EXPECT_THAT(std::string(corpora->find("notes").status().message()), HasSubstr("'notes'"));
  EXPECT_EQ(notes->upsert(kDocuments, {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(corpora->remove("default").value(), 1u);
  EXPECT_THAT(search(*corpora->find("").value(), "anything", 9), IsEmpty());
  upsert(*corpora->find("").value(), {kDocuments[2]});
  corpora.reset();
  corpora = open_all(folder_);
  EXPECT_THAT(corpora->list(), SizeIs(1));
  EXPECT_THAT(search(*corpora->find("").value(), "anything", 9), ElementsAre("bread"));
}

TEST(CorpusSettings, NamesWhatIsWrong) {
  for (const char* name : {"", "Upper", "a/b", "a b", "\xc3\xa9"}) {
    EXPECT_FALSE(check_corpus_name(name).ok()) << name;
  }
  EXPECT_FALSE(check_corpus_name(std::string(65, 'a')).ok());
  EXPECT_TRUE(check_corpus_name("a-1_2.3").ok());
  const auto error = [](const CorpusSettings& settings) {
    return std::string(check_chunk_settings(settings).message());
  };
  EXPECT_THAT(error({.chunk_tokens = 63}), HasSubstr("chunk_tokens: 63, must be 0 or 64..65536"));
  EXPECT_THAT(error({.chunk_tokens = 100, .chunk_overlap_tokens = 51}),
              HasSubstr("chunk_overlap_tokens: 51, at most 50"));
  EXPECT_EQ(error({.chunk_tokens = 100, .chunk_overlap_tokens = 50}), "");
  EXPECT_EQ(error({.chunk_tokens = 0, .chunk_overlap_tokens = 50}), "");
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
