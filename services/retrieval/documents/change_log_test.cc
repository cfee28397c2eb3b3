#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/strings.h"
#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/documents/store_fixture.h"

namespace ragcache::retrieval {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// What an index does with the log: keeps vectors up to date, reading pages of some size.
class Follower {
 public:
  explicit Follower(LogPart part = {}) : part_(part) {}

  absl::Status follow(DocumentStore& store, CorpusNumber corpus, uint32_t size) {
    while (true) {
      bool at_end = false;
      if (absl::Status status = read_page(store, corpus, size, at_end); !status.ok()) return status;
      if (at_end) return absl::OkStatus();
    }
  }

  absl::Status read_page(DocumentStore& store, CorpusNumber corpus, uint32_t size, bool& at_end) {
    auto page = store.changes_after(corpus, position_, size, part_);
    if (!page.ok()) return page.status();
    EXPECT_LE(page->changes.size(), size);
    EXPECT_LE(page->upto, page->end);
    uint64_t last = position_.sequence;
    for (const VectorChange& change : page->changes) {
      EXPECT_GT(change.sequence, last);
      last = change.sequence;
      EXPECT_EQ(shard_of(change.placement, part_.shards), part_.shard);
      if (change.removed) {
        EXPECT_THAT(change.embedding, IsEmpty());
        vectors_.erase(change.vector);
      } else {
        EXPECT_TRUE(vectors_.emplace(change.vector, change.embedding).second);
      }
      const auto known = placements_.emplace(change.vector, change.placement).first;
      EXPECT_EQ(known->second, change.placement);
    }
    EXPECT_GE(page->upto, last);
    if (position_.sequence == 0) position_.origin = page->end;
    position_.sequence = page->upto;
    at_end = page->upto == page->end;
    return absl::OkStatus();
  }

  const std::map<VectorId, std::vector<float>>& vectors() const { return vectors_; }
  uint64_t sequence() const { return position_.sequence; }

 private:
  const LogPart part_;
  LogPosition position_;
  std::map<VectorId, std::vector<float>> vectors_;
  std::map<VectorId, Placement> placements_;
};

class ChangeLog : public StoreFixture {
 protected:
  static std::map<VectorId, std::vector<float>> stored(DocumentStore& store, CorpusNumber corpus) {
    std::map<VectorId, std::vector<float>> vectors;
    EXPECT_TRUE(store
                    .read_embeddings(store.current_vectors(corpus).value(),
                                     [&](VectorId id, std::span<const float> embedding) {
                                       vectors[id].assign(embedding.begin(), embedding.end());
                                     })
                    .ok());
    return vectors;
  }

  // Puts a document of `n_pieces` and gives each piece another vector.
  static void put_pieces(DocumentWriter& writer, CorpusNumber corpus, const std::string& id,
                         size_t n_pieces, float value) {
    const std::vector<Piece> pieces(n_pieces, piece("x"));
    std::vector<float> embeddings(n_pieces * kDimension, value);
    ASSERT_TRUE(writer.put(corpus, document(id, "x"), {}, pieces, embeddings).ok());
  }
};

TEST_F(ChangeLog, BringsFollowersToTheStoreWhereverTheyBegin) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  auto store = open();
  const std::vector<CorpusNumber> corpora = {default_corpus(*store),
                                             store->create_corpus("other", {}).value().number};
  std::map<CorpusNumber, Follower> frequent, rare;
  std::map<CorpusNumber, std::vector<Follower>> parts;
  for (const CorpusNumber corpus : corpora) {
    for (uint32_t shard = 0; shard < 3; ++shard) parts[corpus].emplace_back(LogPart{shard, 3});
  }
  for (int round = 0; round < 120; ++round) {
    {
      auto writer = store->begin_write();
      ASSERT_TRUE(writer.ok());
      for (uint64_t i = random() % 6; i-- > 0;) {
        const CorpusNumber corpus = corpora[random() % 2];
        const std::string id = str_cat("d", random() % 12);
        if (random() % 3 == 0) {
          ASSERT_TRUE(writer->erase(corpus, id).ok());
        } else {
          put_pieces(*writer, corpus, id, 1 + random() % 4, static_cast<float>(round));
        }
      }
      if (random() % 5 != 0) {
        ASSERT_TRUE(writer->commit().ok());
      }
    }
    if (round == 60) {
      store.reset();
      store = open();
    }
    for (const CorpusNumber corpus : corpora) {
      const uint32_t page = 1 + static_cast<uint32_t>(random() % 7);
      ASSERT_TRUE(frequent[corpus].follow(*store, corpus, page).ok());
      EXPECT_EQ(frequent[corpus].vectors(), stored(*store, corpus));
      if (random() % 10 == 0) {
        ASSERT_TRUE(rare[corpus].follow(*store, corpus, page).ok());
        EXPECT_EQ(rare[corpus].vectors(), stored(*store, corpus));
      }
      EXPECT_EQ(frequent[corpus].sequence(), store->last_sequence(corpus));
      std::map<VectorId, std::vector<float>> together;
      for (Follower& part : parts[corpus]) {
        ASSERT_TRUE(part.follow(*store, corpus, page).ok());
        together.insert(part.vectors().begin(), part.vectors().end());
      }
      EXPECT_EQ(together, stored(*store, corpus));
    }
  }
}

TEST_F(ChangeLog, PutsAllPiecesOfADocumentInOnePlace) {
  auto store = open();
  auto writer = store->begin_write();
  put_pieces(*writer, default_corpus(*store), "guide", 5, 1);
  ASSERT_TRUE(writer->commit().ok());
  const auto page = store->changes_after(default_corpus(*store), {}, 9).value();
  EXPECT_THAT(page.changes, SizeIs(5));
  for (const VectorChange& change : page.changes) {
    EXPECT_EQ(change.placement, placement_of("guide"));
  }
}

TEST_F(ChangeLog, LeavesOutVectorsOfAnotherModel) {
  { put(*open(), document("a", "x")); }
  auto store = open("other model");
  EXPECT_THAT(store->changes_after(default_corpus(*store), {}, 9).value().changes, IsEmpty());
  put(*store, document("a", "x"));
  EXPECT_THAT(store->changes_after(default_corpus(*store), {}, 9).value().changes, SizeIs(2));
}

TEST_F(ChangeLog, ForgetsOldRemovalsAndSaysSo) {
  constexpr size_t kPieces = 1024;
  auto store = open();
  const CorpusNumber corpus = default_corpus(*store);
  Follower behind, ahead;
  uint64_t removals = 0;
  while (removals <= DocumentWriter::kRemovalsMax) {
    auto writer = store->begin_write();
    for (int i = 0; i < 8; ++i) {
      put_pieces(*writer, corpus, "d", kPieces, static_cast<float>(i));
    }
    ASSERT_TRUE(writer->commit().ok());
    writer = absl::UnknownError("ended");
    removals += kPieces * (removals == 0 ? 7 : 8);
    if (behind.sequence() == 0) {
      ASSERT_TRUE(behind.follow(*store, corpus, 4096).ok());
    }
    if (removals > DocumentWriter::kRemovalsMax / 2 && ahead.sequence() == 0) {
      ASSERT_TRUE(ahead.follow(*store, corpus, 4096).ok());
    }
  }
  for (int open_again = 0; open_again < 2; ++open_again) {
    EXPECT_EQ(behind.follow(*store, corpus, 4096).code(), absl::StatusCode::kOutOfRange);
    // In pages that end before what the log has forgotten.
    Follower fresh;
    ASSERT_TRUE(fresh.follow(*store, corpus, 100).ok());
    EXPECT_EQ(fresh.vectors(), stored(*store, corpus));
    Follower reached(ahead);
    ASSERT_TRUE(reached.follow(*store, corpus, 4096).ok());
    EXPECT_EQ(reached.vectors(), stored(*store, corpus));
    store.reset();
    store = open();
  }
}

TEST_F(ChangeLog, RefusesAPlaceThatItHasNotReached) {
  auto store = open();
  put(*store, document("a", "x"));
  const CorpusNumber corpus = default_corpus(*store);
  const uint64_t last = store->last_sequence(corpus);
  EXPECT_THAT(store->changes_after(corpus, {.sequence = last}, 9).value().changes, IsEmpty());
  EXPECT_EQ(store->changes_after(corpus, {.sequence = last + 1}, 9).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace ragcache::retrieval
