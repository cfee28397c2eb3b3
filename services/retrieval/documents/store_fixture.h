#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/documents/document_writer.h"

namespace ragcache::retrieval {

// A folder for a document store, for tests.
class StoreFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kDimension = 4;

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

  static DocumentText document(const std::string& id, const std::string& text) {
    return {.id = id, .title = "title of " + id, .text = text};
  }

  static Piece piece(const std::string& text, uint32_t overlap_bytes = 0) {
    Piece made{.text = text, .overlap_bytes = overlap_bytes};
    made.segment_tokens = {7, 1u << 31, static_cast<uint32_t>(text.size())};
    made.token_digest = digest_of_tokens(made.segment_tokens);
    return made;
  }

  static CorpusNumber default_corpus(const DocumentStore& store) {
    return store.find_corpus(kDefaultCorpus)->number;
  }

  // As one piece, into the default corpus.
  static DocumentWriter::Stored put(DocumentStore& store, const DocumentText& document,
                                    std::vector<float> embedding = {1, 0, 0, 0}) {
    auto writer = store.begin_write();
    EXPECT_TRUE(writer.ok()) << writer.status();
    const std::vector<Piece> pieces = {piece(document.text)};
    auto stored = writer->put(default_corpus(store), document, {}, pieces, embedding);
    EXPECT_TRUE(stored.ok()) << stored.status();
    EXPECT_TRUE(writer->commit().ok());
    return *stored;
  }

  static std::vector<DocumentRecord> find(DocumentStore& store, const std::string& id) {
    auto found = store.find_by_id(default_corpus(store), std::vector{id});
    EXPECT_TRUE(found.ok()) << found.status();
    return found->at(0);
  }

  std::string folder_;
};

}  // namespace ragcache::retrieval
