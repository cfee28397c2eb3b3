#include "services/retrieval/router/generations.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <numeric>
#include <random>
#include <utility>

#include "common/strings.h"
#include "services/retrieval/documents/document_writer.h"
#include "services/retrieval/index/make_index.h"
#include "services/retrieval/router/merge.h"

namespace ragcache::retrieval {
namespace {

using Kind = IndexOptions::Kind;

constexpr uint32_t kDimension = 16;
constexpr uint64_t kDocuments = 1500;
constexpr uint64_t kSeed = 5;

std::vector<float> unit_vector(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> vector(kDimension);
  for (float& x : vector) x = normal(random);
  const float norm =
      std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0f));
  for (float& x : vector) x /= norm;
  return vector;
}

// A store with one corpus, whose vectors depend on a document's number and version alone.
class Library {
 public:
  explicit Library(std::string folder) : folder_(std::move(folder)) {
    const DocumentSources sources = {.embedding_model = sha256("model"),
                                     .tokenizer = sha256("tokenizer"),
                                     .dimension = kDimension};
    store_ = DocumentStore::open(folder_, sources, 2).value();
    corpus_ = store_->find_corpus(kDefaultCorpus)->number;
  }
  ~Library() {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  // In one transaction. Each seventh document has two pieces.
  void put(std::span<const uint64_t> numbers, uint64_t version) {
    auto writer = store_->begin_write();
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const uint64_t number : numbers) {
      const std::string id = id_of(number);
      const std::vector<Piece> pieces(number % 7 == 0 ? 2 : 1, {.text = id});
      std::vector<float> vectors;
      for (size_t piece = 0; piece < pieces.size(); ++piece) {
        const auto vector = unit_vector(number + 10'000 * piece + 1'000'000 * version);
        vectors.insert(vectors.end(), vector.begin(), vector.end());
      }
      ASSERT_TRUE(writer->put(corpus_, {.id = id, .text = id}, {}, pieces, vectors).ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  void erase(uint64_t number) {
    auto writer = store_->begin_write();
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->erase(corpus_, id_of(number)).ok());
    ASSERT_TRUE(writer->commit().ok());
  }

  // What the corpus is trained to; empty if it is not.
  std::string train(const IndexOptions& options) {
    std::promise<std::string> trained;
    std::future<std::string> future = trained.get_future();
    Generations generations(folder_, options, sha256("model"), *store_,
                            [&trained](const AddGeneration& added) {
                              trained.set_value(added.generation.spec->trained);
                            });
    EXPECT_EQ(generations.open(corpus_).value().size(), 1u);
    generations.settle(corpus_);
    const bool is_trained = future.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    EXPECT_TRUE(is_trained);
    generations.close(corpus_);
    return is_trained ? future.get() : std::string();
  }

  // An index of one part of the corpus, filled from the log in pages of so many changes.
  std::unique_ptr<VectorIndex> index(const IndexOptions& options, const std::string& trained,
                                    const LogPart& part, uint32_t page_size) {
    auto index = make_index(options, trained).value();
    LogPosition position;
    while (true) {
      const ChangePage page = store_->changes_after(corpus_, position, page_size, part).value();
      for (const VectorChange& change : page.changes) {
        if (change.removed) continue;  // of a vector that was never seen
        EXPECT_TRUE(index->add(std::span(&change.vector, 1), change.embedding).ok());
      }
      if (page.upto == page.end) return index;
      if (position.sequence == 0) position.origin = page.end;
      position.sequence = page.upto;
    }
  }

  // What a search answers: the k best pieces, ties by id.
  std::vector<std::pair<float, std::string>> best(
      const std::vector<std::unique_ptr<VectorIndex>>& parts, std::span<const float> query, size_t k,
      const IndexOptions& options) {
    std::vector<Candidates> candidates;
    for (const auto& part : parts) {
      candidates.push_back(part->candidates(query, k, nullptr).value());
    }
    std::vector<std::pair<float, std::string>> found;
    for (const VectorHit& hit : merge(std::move(candidates), k, options)) {
      found.emplace_back(-hit.score, store_->find_by_vector(std::vector{hit.id}).value()[0]->id);
    }
    std::ranges::sort(found);
    found.resize(std::min(found.size(), k));
    return found;
  }

 private:
  static std::string id_of(uint64_t number) { return str_cat("d", number); }

  const std::string folder_;
  std::unique_ptr<DocumentStore> store_;
  CorpusNumber corpus_ = 0;
};

class GenerationsTest : public ::testing::TestWithParam<Kind> {
 protected:
  static std::string folder(const char* name) {
    return str_cat(::testing::TempDir(), "generations_", getpid(), "_", name);
  }
};

TEST_P(GenerationsTest, TrainEqualCorporaAlikeHoweverTheyCameToBe) {
  const IndexOptions options = {
      .kind = GetParam(), .dimension = kDimension, .ivf_lists = 8, .ivf_probes = 2, .pq_bits = 4};
  std::vector<uint64_t> numbers(kDocuments);
  std::iota(numbers.begin(), numbers.end(), 1);
  Library one(folder("one")), other(folder("other"));
  one.put(numbers, 1);
  // The same, in another order, in many commits, with detours.
  std::ranges::shuffle(numbers, std::mt19937_64(kSeed));
  other.put(std::vector<uint64_t>{3, 50'000, 700}, 9);
  for (size_t begin = 0; begin < numbers.size(); begin += 70) {
    const auto batch =
        std::span(numbers).subspan(begin, std::min<size_t>(70, numbers.size() - begin));
    if (begin % 3 == 0) other.put(batch.first(10), 8);
    other.put(batch, 1);
  }
  other.erase(50'000);

  const std::string trained = one.train(options);
  EXPECT_GT(TrainedState::parse(trained).value().info.lists, 0u);
  EXPECT_EQ(to_hex(sha256(trained)), to_hex(sha256(other.train(options))));

  std::vector<std::unique_ptr<VectorIndex>> whole, parts;
  whole.push_back(one.index(options, trained, {}, 1000));
  for (uint32_t shard = 0; shard < 3; ++shard) {
    parts.push_back(other.index(options, trained, {.shard = shard, .shards = 3}, 64));
  }
  for (uint64_t query = 0; query < 200; ++query) {
    const std::vector<float> vector = unit_vector(77'000'000 + query);
    ASSERT_EQ(one.best(whole, vector, 10, options), other.best(parts, vector, 10, options))
        << "query " << query << ", seed " << kSeed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GenerationsTest,
                         ::testing::Values(Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8),
                         [](const auto& info) { return std::string(index_kind_name(info.param)); });

}  // namespace
}  // namespace ragcache::retrieval
