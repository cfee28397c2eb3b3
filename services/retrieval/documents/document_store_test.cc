#include "services/retrieval/documents/document_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/documents/store_fixture.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using DocumentStoreTest = StoreFixture;

std::vector<float> embeddings(size_t pieces) { return std::vector<float>(pieces * 4, 0.5f); }

TEST_F(DocumentStoreTest, GivesBackWhatWasCommittedAfterReopening) {
  DocumentText document = StoreFixture::document("a", std::string("text\0with zero", 14));
  document.metadata = R"({"year":1990})";
  VectorId vector;
  Digest id;
  {
    auto store = open();
    vector = put(*store, document, {0.5f, -1, 0, 3}).vectors.at(0);
    id = store->store_id();
  }
  auto store = open();
  EXPECT_EQ(store->store_id(), id);
  EXPECT_EQ(store->document_count(), 1u);
  EXPECT_THAT(find(*store, "none"), IsEmpty());
  const DocumentRecord found = find(*store, "a").at(0);
  EXPECT_EQ(found.id, "a");
  EXPECT_EQ(found.source_id, "");
  EXPECT_EQ(found.title, document.title);
  EXPECT_EQ(found.text, document.text);
  EXPECT_EQ(found.metadata, document.metadata);
  EXPECT_EQ(found.content_digest, content_digest(document.title, document.text));
  EXPECT_EQ(found.segment_tokens, piece(document.text).segment_tokens);
  EXPECT_EQ(found.token_digest, piece(document.text).token_digest);
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
    const auto first = put(*store, document("a", "one"));
    const auto second = put(*store, document("a", "two"));
    EXPECT_EQ(second.replaced, first.vectors);
    EXPECT_GT(second.vectors, first.vectors);
    EXPECT_EQ(store->document_count(), 1u);
    EXPECT_FALSE((*store->find_by_vector(first.vectors))[0].has_value());
    auto writer = store->begin_write();
    EXPECT_EQ(writer->erase(default_corpus(*store), "a").value(), second.vectors);
    EXPECT_THAT(writer->erase(default_corpus(*store), "a").value(), IsEmpty());
    ASSERT_TRUE(writer->commit().ok());
    EXPECT_EQ(store->document_count(), 0u);
    last = second.vectors.at(0);
  }
  EXPECT_GT(put(*open(), document("a", "three")).vectors.at(0), last);
}

TEST_F(DocumentStoreTest, KeepsTheNumbersOfDeletedCorporaAndVectorsFromComingBack) {
  VectorId vector;
  CorpusNumber number;
  {
    auto store = open();
    number = store->create_corpus("notes", {}).value().number;
    auto writer = store->begin_write();
    vector = writer->put(number, document("a", "x"), {}, std::vector{piece("x")}, embeddings(1))
                 ->vectors.at(0);
    ASSERT_TRUE(writer->commit().ok());
    writer = absl::UnknownError("ended");
    ASSERT_TRUE(store->delete_corpus(number).ok());
  }
  auto store = open();
  EXPECT_GT(store->create_corpus("notes", {}).value().number, number);
  EXPECT_GT(put(*store, document("a", "x")).vectors.at(0), vector);
}

TEST_F(DocumentStoreTest, KeepsAPiecedDocumentTogether) {
  auto store = open();
  const CorpusNumber corpus = default_corpus(*store);
  const ChunkOptions cut = {.max_tokens = 64, .overlap_tokens = 8};
  const DocumentText whole = document("guide", "One. Two. Three.");
  const std::vector<Piece> pieces = {piece("One. "), piece("One. Two. ", 5), piece("Three.")};
  auto writer = store->begin_write();
  const auto stored = writer->put(corpus, whole, cut, pieces, embeddings(3));
  ASSERT_TRUE(stored.ok() && writer->commit().ok());
  writer = absl::UnknownError("ended");
  EXPECT_THAT(stored->vectors, SizeIs(3));
  EXPECT_EQ(store->document_count(), 1u);
  EXPECT_EQ(store->find_corpus(corpus)->pieces, 3u);

  const auto found = find(*store, "guide");
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[1].id, "guide#2");
  EXPECT_EQ(found[1].source_id, "guide");
  EXPECT_EQ(found[1].text, "One. Two. ");
  EXPECT_EQ(found[1].content_digest, content_digest(whole.title, "One. Two. "));
  ASSERT_THAT(find(*store, "guide#3"), SizeIs(1));
  EXPECT_EQ(find(*store, "guide#3")[0].text, "Three.");
  EXPECT_EQ((*store->find_by_vector(stored->vectors))[0]->id, "guide#1");
  for (const char* none : {"guide#4", "guide#0", "guide#", "guide#03", "#1"}) {
    EXPECT_THAT(find(*store, none), IsEmpty()) << none;
  }
  EXPECT_THAT(store->list(corpus, "", 10).value(), SizeIs(1));
  EXPECT_EQ(store->list(corpus, "", 10).value()[0].content_digest,
            content_digest(whole.title, whole.text));

  const auto replaced = put(*store, document("guide", "short"));
  EXPECT_EQ(replaced.replaced, stored->vectors);
  EXPECT_THAT(find(*store, "guide#2"), IsEmpty());
  EXPECT_THAT(find(*store, "guide"), SizeIs(1));
  // A document of one piece is that piece.
  EXPECT_THAT(find(*store, "guide#1"), IsEmpty());
}

TEST_F(DocumentStoreTest, ForgetsABatchThatWasNotCommitted) {
  auto store = open();
  put(*store, document("a", "one"));
  const uint64_t sequence = store->last_sequence(default_corpus(*store));
  {
    auto writer = store->begin_write();
    for (const char* id : {"a", "b"}) {
      ASSERT_TRUE(writer
                      ->put(default_corpus(*store), document(id, "two"), {},
                            std::vector{piece("two")}, embeddings(1))
                      .ok());
    }
    // Readers go on with the state before.
    EXPECT_EQ(find(*store, "a").at(0).text, "one");
  }
  EXPECT_EQ(store->document_count(), 1u);
  EXPECT_EQ(store->last_sequence(default_corpus(*store)), sequence);
  EXPECT_EQ(find(*store, "a").at(0).text, "one");
}

TEST_F(DocumentStoreTest, TellsUnchangedDocumentsFromChangedOnes) {
  auto store = open();
  const CorpusNumber corpus = default_corpus(*store);
  put(*store, document("a", "one"));
  const std::vector<DocumentText> documents = {{"a", "title of a", "one"},
                                               {"a", "title of a", "two"},
                                               {"a", "title of ao", "ne"},
                                               {"b", "title of a", "one"},
                                               {"a", "title of a", "one", R"({"year":1990})"}};
  EXPECT_THAT(store->current_pieces(corpus, {}, documents).value(), ElementsAre(1, 0, 0, 0, 0));
}

TEST_F(DocumentStoreTest, TakesADocumentForUnchangedIfItWouldBeCutTheSameWay) {
  auto store = open();
  const CorpusNumber corpus = default_corpus(*store);
  const ChunkOptions cut = {.max_tokens = 64, .overlap_tokens = 8};
  put(*store, document("short", "one"));  // 3 tokens
  auto writer = store->begin_write();
  ASSERT_TRUE(writer
                  ->put(corpus, document("long", "one two"), cut,
                        std::vector{piece("one "), piece("two")}, embeddings(2))
                  .ok());
  ASSERT_TRUE(writer->commit().ok());
  writer = absl::UnknownError("ended");
  const std::vector<DocumentText> both = {document("short", "one"), document("long", "one two")};
  const auto current = [&](const ChunkOptions& options) {
    return store->current_pieces(corpus, options, both).value();
  };
  EXPECT_THAT(current(cut), ElementsAre(1, 2));
  EXPECT_THAT(current({.max_tokens = 64, .overlap_tokens = 9}), ElementsAre(1, 0));
  EXPECT_THAT(current({.max_tokens = 3, .overlap_tokens = 8}), ElementsAre(1, 0));
  EXPECT_THAT(current({.max_tokens = 2, .overlap_tokens = 0}), ElementsAre(0, 0));
  EXPECT_THAT(current({}), ElementsAre(1, 0));
}

TEST_F(DocumentStoreTest, FindsDocumentsMadeByOtherSources) {
  {
    auto store = open();
    put(*store, document("a", "one"), {1, 2, 3, 4});
    auto writer = store->begin_write();
    DocumentText long_one = document("b", "one two");
    long_one.metadata = "{}";
    ASSERT_TRUE(writer
                    ->put(default_corpus(*store), long_one, {.max_tokens = 9},
                          std::vector{piece("one "), piece("one two", 4)}, embeddings(2))
                    .ok());
    ASSERT_TRUE(writer->commit().ok());
  }
  {
    auto store = open("m", "other tokenizer");
    EXPECT_EQ(store->stale_count().value(), 2u);
    EXPECT_THAT(store->current_vectors(default_corpus(*store)).value(), SizeIs(3));
    const auto stale = store->stale(2).value();
    ASSERT_EQ(stale.size(), 2u);
    EXPECT_EQ(stale[0].corpus, default_corpus(*store));
    EXPECT_EQ(stale[0].document.id, "a");
    EXPECT_THAT(*stale[0].pieces.at(0).embedding, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(stale[1].document.text, "one two");
    EXPECT_EQ(stale[1].document.metadata, "{}");
    EXPECT_EQ(stale[1].pieces.at(1).text, "one two");
    put(*store, document("a", "one"));
    EXPECT_EQ(store->stale_count().value(), 1u);
  }
  auto store = open("other model", "other tokenizer");
  EXPECT_EQ(store->stale_count().value(), 2u);
  EXPECT_THAT(store->current_vectors(default_corpus(*store)).value(), IsEmpty());
  EXPECT_FALSE(store->stale(1).value()[0].pieces[0].embedding.has_value());
}

TEST_F(DocumentStoreTest, ListsInIdOrderPageByPage) {
  auto store = open();
  for (const char* id : {"c", "a", "b", "B"}) put(*store, document(id, "x"));
  std::vector<std::string> ids;
  std::string after;
  while (true) {
    const auto page = store->list(default_corpus(*store), after, 3).value();
    if (page.empty()) break;
    for (const DocumentSummary& summary : page) ids.push_back(summary.id);
    after = ids.back();
  }
  EXPECT_THAT(ids, ElementsAre("B", "a", "b", "c"));
}

TEST_F(DocumentStoreTest, SeesOneStatePerReadWhileAWriterReplaces) {
  auto store = open();
  const CorpusNumber corpus = default_corpus(*store);
  const std::vector<std::string> ids = {"a", "b"};
  const auto write = [&](const std::string& text) {
    auto writer = store->begin_write();
    for (const std::string& id : ids) {
      ASSERT_TRUE(
          writer->put(corpus, document(id, text), {}, std::vector{piece(text)}, embeddings(1))
              .ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  };
  write("0");
  std::thread replacer([&] {
    for (int i = 1; i <= 50; ++i) write(std::to_string(i));
  });
  std::string text;
  while (text != "50") {
    const auto found = store->find_by_id(corpus, ids);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ((*found)[0].at(0).text, (*found)[1].at(0).text);
    text = (*found)[0][0].text;
  }
  replacer.join();
}

TEST_F(DocumentStoreTest, KeepsCorporaApart) {
  {
    auto store = open();
    const CorpusSettings settings = {.cache_scope = CacheScope::kShared,
                                     .chunk_tokens = 256,
                                     .chunk_overlap_tokens = std::nullopt};
    const CorpusNumber notes = store->create_corpus("notes", settings).value().number;
    EXPECT_EQ(store->create_corpus("notes", settings).status().code(),
              absl::StatusCode::kAlreadyExists);
    put(*store, document("a", "in default"));
    auto writer = store->begin_write();
    ASSERT_TRUE(writer
                    ->put(notes, document("a", "in notes"), {}, std::vector{piece("in notes")},
                          embeddings(1))
                    .ok());
    ASSERT_TRUE(writer->commit().ok());
  }
  auto store = open();
  EXPECT_EQ(store->document_count(), 2u);
  const std::vector<CorpusRecord> corpora = store->corpora();
  ASSERT_THAT(corpora, SizeIs(2));
  EXPECT_EQ(corpora[0].name, "default");
  EXPECT_EQ(corpora[1].name, "notes");
  EXPECT_EQ(corpora[1].settings.cache_scope, CacheScope::kShared);
  EXPECT_EQ(corpora[1].settings.chunk_tokens, 256u);
  EXPECT_EQ(corpora[1].settings.chunk_overlap_tokens, std::nullopt);
  EXPECT_EQ(find(*store, "a").at(0).text, "in default");
  const CorpusNumber notes = corpora[1].number;
  EXPECT_EQ(store->find_by_id(notes, std::vector<std::string>{"a"}).value()[0].at(0).text,
            "in notes");
  ASSERT_TRUE(store->delete_corpus(notes).ok());
  EXPECT_EQ(store->document_count(), 1u);
  EXPECT_THAT(store->find_by_id(notes, std::vector<std::string>{"a"}).value()[0], IsEmpty());
  EXPECT_THAT(store->changes_after(notes, {}, 10).value().changes, IsEmpty());
  EXPECT_EQ(store->begin_write()->erase(notes, "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->delete_corpus(notes).code(), absl::StatusCode::kNotFound);

  // The default corpus is emptied by a successor.
  const CorpusNumber first = default_corpus(*store);
  ASSERT_TRUE(store->delete_corpus(first).ok());
  EXPECT_NE(default_corpus(*store), first);
  EXPECT_EQ(store->document_count(), 0u);
  put(*store, document("a", "again"));
  EXPECT_EQ(store->document_count(), 1u);
}

TEST_F(DocumentStoreTest, RefusesASecondOpener) {
  auto store = open();
  const auto second = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another process"));
}

TEST_F(DocumentStoreTest, NamesADamagedFile) {
  { put(*open(), document("a", std::string(100000, 'x'))); }
  const std::string path = folder_ + "/documents.db";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(std::string(4096, 'y').data(), 4096);
  }
  const auto damaged = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr(path));
}

// A page that no table needs at its opening.
TEST_F(DocumentStoreTest, NamesADamagedPageWhenItIsRead) {
  {
    auto store = open();
    for (int i = 0; i < 40; ++i) {
      put(*store, document(str_cat("d", i), std::string(10'000, 'x')));
    }
  }
  const std::string path = folder_ + "/documents.db";
  const uint64_t size = std::filesystem::file_size(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2 / 4096 * 4096));
    for (uint64_t page = 0; page < size / 4 / 4096; ++page) {
      file.write(std::string(4096, '\xEE').data(), 4096);
    }
  }
  auto store = DocumentStore::open(folder_, sources("m", "t"), 1);
  absl::Status status = store.status();
  for (int i = 0; i < 40 && status.ok(); ++i) {
    const std::vector<std::string> id = {str_cat("d", i)};
    status = (*store)->find_by_id(default_corpus(**store), id).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr("restore it from a copy"));
}

// A file that may not grow is what a full disk is to a program.
TEST_F(DocumentStoreTest, SaysThatTheDiskIsFullAndGoesOnWhenItIsNot) {
  auto store = open();
  const auto fill = [&]() -> absl::Status {
    for (int i = 0; i < 1000; ++i) {
      RAG_ASSIGN_OR_RETURN(DocumentWriter writer, store->begin_write());
      const DocumentText large = document(str_cat("d", i), std::string(100'000, 'x'));
      RAG_RETURN_IF_ERROR(
          writer
              .put(default_corpus(*store), large, {}, std::vector{piece(large.text)}, embeddings(1))
              .status());
      RAG_RETURN_IF_ERROR(writer.commit());
    }
    return absl::OkStatus();
  };
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit free_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &free_limit), 0);
  rlimit limit = free_limit;
  limit.rlim_cur = 4 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status full = fill();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &free_limit), 0);
  std::signal(SIGXFSZ, before);

  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr(folder_ + "/documents.db"));
  const uint64_t committed = store->document_count();
  EXPECT_GT(committed, 5u);
  EXPECT_LT(committed, 1000u);
  EXPECT_EQ(find(*store, str_cat("d", committed - 1)).size(), 1u);
  put(*store, document("after", "x"));
  store.reset();
  EXPECT_EQ(open()->document_count(), committed + 1);
}

TEST_F(DocumentStoreTest, RefusesAFolderThatCannotBeMade) {
  std::ofstream(folder_) << "a file";
  const auto store = DocumentStore::open(folder_, sources("m", "t"), 1);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(folder_));
}

TEST(Placement, DependsOnTheDocumentAloneAndSpreads) {
  EXPECT_EQ(placement_of("guide"), placement_of("guide"));
  std::vector<int> counts(3);
  for (int i = 0; i < 3000; ++i) ++counts[shard_of(placement_of(str_cat("d", i)), 3)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 100);
}

}  // namespace
}  // namespace ragcache::retrieval
