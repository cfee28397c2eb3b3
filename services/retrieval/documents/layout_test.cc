#include "services/retrieval/documents/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "services/retrieval/documents/blob.h"
#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/documents/store_fixture.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// As the first version wrote it.
constexpr char kVersion1[] = R"sql(
  CREATE TABLE properties (name TEXT PRIMARY KEY, value BLOB NOT NULL);
  CREATE TABLE sources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    UNIQUE (kind, fingerprint));
  CREATE TABLE documents (
    vector_id INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    embedding_source INTEGER NOT NULL REFERENCES sources(number),
    tokenizer_source INTEGER NOT NULL REFERENCES sources(number),
    content_digest BLOB NOT NULL,
    token_digest BLOB NOT NULL,
    title TEXT NOT NULL,
    embedding BLOB NOT NULL,
    tokens BLOB NOT NULL,
    text TEXT NOT NULL);
  CREATE INDEX documents_by_source ON documents (embedding_source, tokenizer_source);
  INSERT INTO properties VALUES ('store_id', zeroblob(32));
  PRAGMA user_version=1;
)sql";

class LayoutTest : public StoreFixture {
 protected:
  std::unique_ptr<SqliteDatabase> open_file() {
    std::filesystem::create_directories(folder_);
    return SqliteDatabase::open(folder_ + "/documents.db").value();
  }

  void add_version1(SqliteDatabase& database, const std::string& id, const std::string& text) {
    const DocumentSources now = sources("m", "t");
    const std::vector<float> embedding = {1, 2, 3, static_cast<float>(text.size())};
    for (const auto& [kind, value] :
         {std::pair{"embedding", now.embedding_model}, std::pair{"tokenizer", now.tokenizer}}) {
      ASSERT_TRUE(
          database.prepare("INSERT OR IGNORE INTO sources (kind, fingerprint) VALUES (?,?)")
              ->bind(std::string(kind), std::span<const uint8_t>(value))
              .run()
              .ok());
    }
    const Piece made = piece(text);
    const Digest digest = content_digest("title of " + id, text);
    auto insert = database.prepare(
        "INSERT INTO documents (id, embedding_source, tokenizer_source, content_digest, "
        "token_digest, title, embedding, tokens, text) VALUES (?, "
        "(SELECT number FROM sources WHERE kind='embedding'), "
        "(SELECT number FROM sources WHERE kind='tokenizer'), ?, ?, ?, ?, ?, ?)");
    ASSERT_TRUE(insert.ok()) << insert.status();
    ASSERT_TRUE(insert
                    ->bind(id, std::span<const uint8_t>(digest),
                           std::span<const uint8_t>(made.token_digest), "title of " + id,
                           as_blob(std::span<const float>(embedding)),
                           as_blob(std::span<const uint32_t>(made.segment_tokens)), text)
                    .run()
                    .ok());
  }
};

TEST_F(LayoutTest, BringsTheDocumentsOfVersion1IntoTheDefaultCorpus) {
  {
    auto database = open_file();
    ASSERT_TRUE(database->execute(kVersion1).ok());
    for (const char* id : {"a", "gone", "b#1", "last"})
      add_version1(*database, id, std::string(id) + " text");
    ASSERT_TRUE(database->execute("DELETE FROM documents WHERE id IN ('gone', 'last')").ok());
  }
  for (int opening = 0; opening < 2; ++opening) {
    auto store = open();
    EXPECT_EQ(store->store_id(), Digest{});
    EXPECT_EQ(store->document_count(), 2u);
    EXPECT_EQ(store->stale_count().value(), 0u);
    const CorpusNumber corpus = default_corpus(*store);
    EXPECT_EQ(store->find_corpus(corpus)->pieces, 2u);
    const auto found = find(*store, "a");
    ASSERT_THAT(found, SizeIs(1));
    EXPECT_EQ(found[0].title, "title of a");
    EXPECT_EQ(found[0].text, "a text");
    EXPECT_EQ(found[0].metadata, "");
    EXPECT_EQ(found[0].segment_tokens, piece("a text").segment_tokens);
    EXPECT_EQ(found[0].token_digest, piece("a text").token_digest);
    // An id like a piece's was allowed then.
    EXPECT_EQ(find(*store, "b#1").at(0).text, "b#1 text");
    EXPECT_THAT(store
                    ->current_pieces(corpus, {.max_tokens = 100},
                                     std::vector{document("a", "a text"), document("a", "other")})
                    .value(),
                ElementsAre(1, 0));
    // An index file of version 1 fits: its vectors have their numbers.
    EXPECT_THAT(store->current_vectors(corpus).value(), ElementsAre(1, 3));
    const auto changes = store->changes_after(corpus, {}, 10).value().changes;
    ASSERT_THAT(changes, SizeIs(2));
    EXPECT_EQ(changes[0].placement, placement_of("a"));
    EXPECT_THAT(changes[0].embedding, ElementsAre(1, 2, 3, 6));
    EXPECT_EQ(store->last_sequence(corpus), 3u);
  }
  // The number of a deleted document's vector does not come back.
  auto store = open();
  EXPECT_THAT(put(*store, document("new", "x")).vectors, ElementsAre(5));
  EXPECT_THAT(store->changes_after(default_corpus(*store), {.sequence = 3}, 10).value().changes,
              SizeIs(1));
}

TEST_F(LayoutTest, BringsOverAnEmptyStoreOfVersion1) {
  ASSERT_TRUE(open_file()->execute(kVersion1).ok());
  auto store = open();
  EXPECT_EQ(store->document_count(), 0u);
  EXPECT_THAT(put(*store, document("a", "x")).vectors, ElementsAre(1));
}

TEST_F(LayoutTest, LeavesAFileAsItWasWhenItCannotBeBroughtOver) {
  {
    auto database = open_file();
    ASSERT_TRUE(database->execute(kVersion1).ok());
    add_version1(*database, "a", "text");
    // In the way of the new layout.
    ASSERT_TRUE(database->execute("CREATE TABLE removals (x)").ok());
  }
  EXPECT_FALSE(DocumentStore::open(folder_, sources("m", "t"), 1).ok());
  ASSERT_TRUE(open_file()->execute("DROP TABLE removals").ok());
  EXPECT_EQ(find(*open(), "a").at(0).text, "text");
}

TEST_F(LayoutTest, RefusesTheFileOfANewerVersion) {
  ASSERT_TRUE(open_file()->execute("PRAGMA user_version=3").ok());
  const auto store = DocumentStore::open(folder_, sources("m", "t"), 1);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("layout 3"));
}

}  // namespace
}  // namespace ragcache::retrieval
