#include "services/retrieval/documents/document_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kDimension = 4;

class DocumentStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "documents_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<DocumentStore> open(std::string_view model = "m", std::string_view bpe = "t") {
    auto store = DocumentStore::open(folder_, sources(model, bpe), 2);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  static DocumentSources sources(std::string_view model, std::string_view bpe) {
    return {.embedding_model = sha256(model), .tokenizer = sha256(bpe), .dimension = kDimension};
  }

  static DocumentRecord record(const std::string& id, const std::string& text) {
    DocumentRecord record{.id = id, .title = "title of " + id, .text = text};
    record.content_digest = content_digest(record.title, record.text);
    record.segment_tokens = {7, 1u << 31, static_cast<uint32_t>(text.size())};
    record.token_digest = digest_of_tokens(record.segment_tokens);
    return record;
  }

  static DocumentWriter::Stored put(DocumentStore& store, const DocumentRecord& document,
                                    std::vector<float> embedding = {1, 0, 0, 0}) {
    auto writer = store.begin_write();
    EXPECT_TRUE(writer.ok()) << writer.status();
    auto stored = writer->put(document, embedding);
    EXPECT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(writer->commit().ok());
    return *stored;
  }

  std::string folder_;
};

TEST_F(DocumentStoreTest, GivesBackWhatWasCommittedAfterReopening) {
  const DocumentRecord document = record("a", std::string("text\0with zero", 14));
  VectorId vector;
  Digest id;
  {
    auto store = open();
    vector = put(*store, document, {0.5f, -1, 0, 3}).vector;
    id = store->store_id();
  }
  auto store = open();
  EXPECT_EQ(store->store_id(), id);
  EXPECT_EQ(store->document_count(), 1u);
  const auto by_id = store->find_by_id(std::vector<std::string>{"none", "a"});
  ASSERT_TRUE(by_id.ok());
  EXPECT_FALSE((*by_id)[0].has_value());
  const DocumentRecord& found = *(*by_id)[1];
  EXPECT_EQ(found.title, document.title);
  EXPECT_EQ(found.text, document.text);
  EXPECT_EQ(found.content_digest, document.content_digest);
  EXPECT_EQ(found.segment_tokens, document.segment_tokens);
  EXPECT_EQ(found.token_digest, document.token_digest);
  EXPECT_EQ((*store->find_by_vector(std::vector<VectorId>{vector}))[0]->id, "a");
  std::vector<float> embedding;
  ASSERT_TRUE(store
                  ->read_embeddings(std::vector<VectorId>{vector, 99},
                                    [&](VectorId v, auto e) {
                                      EXPECT_EQ(v, vector);
                                      embedding.assign(e.begin(), e.end());
                                    })
                  .ok());
  EXPECT_THAT(embedding, ElementsAre(0.5f, -1, 0, 3));
}

TEST_F(DocumentStoreTest, GivesAReplacedDocumentANewVectorAndNeverAnOldOne) {
  VectorId last;
  {
    auto store = open();
    const auto first = put(*store, record("a", "one"));
    const auto second = put(*store, record("a", "two"));
    EXPECT_EQ(second.replaced, first.vector);
    EXPECT_GT(second.vector, first.vector);
    EXPECT_EQ(store->document_count(), 1u);
    EXPECT_FALSE((*store->find_by_vector(std::vector{first.vector}))[0].has_value());
    auto writer = store->begin_write();
    EXPECT_EQ(writer->erase("a").value(), second.vector);
    EXPECT_EQ(writer->erase("a").value(), std::nullopt);
    ASSERT_TRUE(writer->commit().ok());
    EXPECT_EQ(store->document_count(), 0u);
    last = second.vector;
  }
  EXPECT_GT(put(*open(), record("a", "three")).vector, last);
}

TEST_F(DocumentStoreTest, ForgetsABatchThatWasNotCommitted) {
  auto store = open();
  put(*store, record("a", "one"));
  {
    auto writer = store->begin_write();
    ASSERT_TRUE(writer->put(record("a", "two"), std::vector<float>(kDimension)).ok());
    ASSERT_TRUE(writer->put(record("b", "two"), std::vector<float>(kDimension)).ok());
    // Readers go on with the state before.
    EXPECT_EQ((*store->find_by_id(std::vector<std::string>{"a"}))[0]->text, "one");
  }
  EXPECT_EQ(store->document_count(), 1u);
  EXPECT_EQ((*store->find_by_id(std::vector<std::string>{"a"}))[0]->text, "one");
}

TEST_F(DocumentStoreTest, TellsUnchangedDocumentsFromChangedOnes) {
  auto store = open();
  put(*store, record("a", "one"));
  const std::vector<DocumentText> documents = {{"a", "title of a", "one"},
                                               {"a", "title of a", "two"},
                                               {"a", "title of ao", "ne"},
                                               {"b", "title of a", "one"}};
  EXPECT_THAT(store->are_current(documents).value(), ElementsAre(true, false, false, false));
}

TEST_F(DocumentStoreTest, FindsDocumentsMadeByOtherSources) {
  {
    auto store = open();
    put(*store, record("a", "one"), {1, 2, 3, 4});
    put(*store, record("b", "one"));
  }
  {
    auto store = open("m", "other tokenizer");
    EXPECT_EQ(store->stale_count().value(), 2u);
    EXPECT_EQ(store->current_vectors()->size(), 2u);
    const auto stale = store->stale(1).value();
    ASSERT_EQ(stale.size(), 1u);
    EXPECT_EQ(stale[0].text.id, "a");
    EXPECT_THAT(*stale[0].embedding, ElementsAre(1, 2, 3, 4));
    put(*store, record("a", "one"));
    EXPECT_EQ(store->stale_count().value(), 1u);
  }
  auto store = open("other model", "other tokenizer");
  EXPECT_EQ(store->stale_count().value(), 2u);
  EXPECT_TRUE(store->current_vectors()->empty());
  EXPECT_FALSE(store->stale(1).value()[0].embedding.has_value());
}

TEST_F(DocumentStoreTest, ListsInIdOrderPageByPage) {
  auto store = open();
  for (const char* id : {"c", "a", "b", "B"}) put(*store, record(id, "x"));
  std::vector<std::string> ids;
  std::string after;
  while (true) {
    const auto page = store->list(after, 3).value();
    if (page.empty()) break;
    for (const DocumentSummary& document : page) ids.push_back(document.id);
    after = ids.back();
  }
  EXPECT_THAT(ids, ElementsAre("B", "a", "b", "c"));
}

TEST_F(DocumentStoreTest, SeesOneStatePerReadWhileAWriterReplaces) {
  auto store = open();
  {
    auto writer = store->begin_write();
    for (const char* id : {"a", "b"}) {
      ASSERT_TRUE(writer->put(record(id, "0"), std::vector<float>(kDimension)).ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  std::thread replacer([&] {
    for (int i = 1; i <= 50; ++i) {
      auto writer = store->begin_write();
      for (const char* id : {"a", "b"}) {
        ASSERT_TRUE(
            writer->put(record(id, std::to_string(i)), std::vector<float>(kDimension)).ok());
      }
      ASSERT_TRUE(writer->commit().ok());
    }
  });
  std::string text;
  while (text != "50") {
    const auto found = store->find_by_id(std::vector<std::string>{"a", "b"});
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ((*found)[0]->text, (*found)[1]->text);
    text = (*found)[0]->text;
  }
  replacer.join();
}

TEST_F(DocumentStoreTest, RefusesASecondOpener) {
  auto store = open();
  const auto second = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
}

TEST_F(DocumentStoreTest, NamesADamagedFile) {
  { put(*open(), record("a", std::string(100000, 'x'))); }
  const std::string path = folder_ + "/documents.db";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(std::string(4096, 'y').data(), 4096);
  }
  const auto damaged = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr(path));
}

TEST_F(DocumentStoreTest, RefusesAFolderThatCannotBeMade) {
  std::ofstream(folder_) << "a file";
  const auto store = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(folder_));
}

}  // namespace
}  // namespace ragcache::retrieval
