// A router and real shards, over sockets, in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "common/strings.h"
#include "services/retrieval/app.h"
#include "services/retrieval/documents/document_writer.h"
#include "services/retrieval/router/router.h"
#include "services/retrieval/shard/local_shard.h"
#include "services/retrieval/shard/remote_shard.h"

namespace ragcache::retrieval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kDimension = 16;
constexpr Duration kPatience = std::chrono::seconds(30);

std::vector<float> unit_vector(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> vector(kDimension);
  float norm = 0;
  for (float& x : vector) {
    x = normal(random);
    norm += x * x;
  }
  for (float& x : vector) x /= std::sqrt(norm);
  return vector;
}

// One process of role=shard.
class ShardProcess {
 public:
  ShardProcess(const std::string& folder, uint32_t index, uint32_t count) {
    config_.role = "shard";
    config_.state_dir = folder;
    config_.listen = "unix:" + folder + ".sock";
    config_.shard_index = index;
    config_.shard_count = count;
    start();
  }

  void start() {
    auto app = App::start(config_, std::make_shared<prometheus::Registry>());
    ASSERT_TRUE(app.ok()) << app.status();
    app_ = *std::move(app);
  }
  void stop() { app_.reset(); }

  const std::string& address() const { return config_.listen; }
  const std::string& folder() const { return config_.state_dir; }
  ReplicaEndpoint endpoint() const { return {address(), std::make_shared<RemoteShard>(address())}; }

 private:
  Config config_;
  std::unique_ptr<App> app_;
};

class Cluster : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "cluster_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    open_store("store");
  }
  void TearDown() override {
    routers_.clear();
    shards_.clear();
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  void open_store(const std::string& name) {
    const DocumentSources sources = {.embedding_model = sha256("model"),
                                     .tokenizer = sha256("tokenizer"),
                                     .dimension = kDimension};
    auto store = DocumentStore::open(folder_ + "/" + name, sources, 8);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    corpus_ = store_->find_corpus(kDefaultCorpus)->number;
  }

  ShardProcess& start_shard(const std::string& name, uint32_t index, uint32_t count) {
    return *shards_.emplace_back(
        std::make_unique<ShardProcess>(folder_ + "/" + name, index, count));
  }

  Router& start_router(const std::string& name, std::vector<std::vector<ReplicaEndpoint>> shards,
                       const IndexOptions& index = {.kind = IndexOptions::Kind::kExact}) {
    Router::Options options = {.folder = folder_ + "/" + name,
                               .index = index,
                               .embedding_model = sha256("model"),
                               .shard_timeout = std::chrono::seconds(2)};
    options.index.dimension = kDimension;
    auto router = Router::create(options, std::move(shards), *store_, pool_, registry_);
    EXPECT_TRUE(router.ok()) << router.status();
    EXPECT_TRUE((*router)->open_corpus(corpus_).ok());
    (*router)->start();
    return *routers_.emplace_back(*std::move(router));
  }

  // Two shards; the first has a replica.
  Router& start_cluster(const IndexOptions& index = {.kind = IndexOptions::Kind::kExact}) {
    ShardProcess& first = start_shard("shard0", 0, 2);
    ShardProcess& replica = start_shard("replica0", 0, 2);
    ShardProcess& second = start_shard("shard1", 1, 2);
    return start_router("router", {{first.endpoint(), replica.endpoint()}, {second.endpoint()}},
                        index);
  }

  void put(const std::vector<uint64_t>& numbers, uint64_t version = 0) {
    auto writer = store_->begin_write();
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const uint64_t number : numbers) {
      const std::string id = str_cat("d", number);
      const std::vector<Piece> pieces = {{.text = str_cat(id, " v", version)}};
      ASSERT_TRUE(writer
                      ->put(corpus_, {.id = id, .text = pieces[0].text}, {}, pieces,
                            unit_vector(number + version * 1'000'000))
                      .ok());
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  void put_acknowledged(Router& router, const std::vector<uint64_t>& numbers,
                        uint64_t version = 0) {
    put(numbers, version);
    router.committed(corpus_, store_->last_sequence(corpus_));
  }

  absl::StatusOr<std::vector<FoundDocument>> search(Router& router, std::vector<float> query,
                                                    size_t k) {
    std::promise<absl::StatusOr<std::vector<FoundDocument>>> found;
    router.search({.corpus = corpus_, .vector = std::move(query), .k = k, .timeout = kPatience}, {},
                  [&found](absl::StatusOr<std::vector<FoundDocument>> result) {
                    found.set_value(std::move(result));
                  });
    return found.get_future().get();
  }

  // The document itself is the best for its own vector.
  void expect_found(Router& router, uint64_t number, uint64_t version = 0) {
    const auto found = search(router, unit_vector(number + version * 1'000'000), 1);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ(found->at(0).document.text, str_cat("d", number, " v", version));
  }

  // Waits, by asking, until the router's status is such.
  template <typename Condition>
  void wait_for(Router& router, Condition condition) {
    const TimePoint give_up = steady_now() + kPatience;
    while (!condition(router.status())) {
      ASSERT_LT(steady_now(), give_up) << router.ready();
      std::this_thread::yield();
    }
  }

  std::string folder_;
  boost::asio::thread_pool pool_{2};
  prometheus::Registry registry_;
  std::unique_ptr<DocumentStore> store_;
  CorpusNumber corpus_ = 0;
  std::vector<std::unique_ptr<ShardProcess>> shards_;
  std::vector<std::unique_ptr<Router>> routers_;
};

TEST_F(Cluster, IngestsAndFindsWhileEachShardStopsAndComesBack) {
  Router& router = start_cluster();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  std::atomic<uint64_t> acknowledged = 0;
  std::atomic<bool> ending = false;
  std::thread writer([&] {
    for (uint64_t number = 1; !ending; ++number) {
      put_acknowledged(router, {number});
      acknowledged = number;
    }
  });
  std::atomic<int> answered = 0, unavailable = 0;
  std::thread reader([&] {
    std::mt19937_64 random(7);
    while (!ending) {
      const uint64_t last = acknowledged;
      if (last == 0) continue;
      const uint64_t number = 1 + random() % last;
      const auto found = search(router, unit_vector(number), 1);
      if (found.ok()) {
        ++answered;
        ASSERT_EQ(found->size(), 1u);
        EXPECT_EQ(found->at(0).document.id, str_cat("d", number));
      } else {
        ++unavailable;
        EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable) << found.status();
      }
    }
  });
  const auto reach = [](const auto& counter, auto more) {
    const auto until = counter + more;
    while (counter < until) std::this_thread::yield();
  };
  for (int round = 0; round < 2; ++round) {
    for (const auto& shard : shards_) {
      shard->stop();
      // The first shard's other replica goes on at once.
      if (shard != shards_[2]) reach(answered, 20);
      shard->start();
      reach(answered, 20);
      reach(acknowledged, 5u);
    }
  }
  ending = true;
  writer.join();
  reader.join();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  for (uint64_t number = 1; number <= acknowledged; ++number) expect_found(router, number);
  std::cout << acknowledged << " documents, " << answered << " searches answered, " << unavailable
            << " not\n";
}

TEST_F(Cluster, ReplaysWhatAShardMissedAndStartsAFreshOneFromTheStore) {
  Router& router = start_cluster();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  put_acknowledged(router, {1, 2, 3, 4, 5, 6, 7, 8});
  shards_[2]->stop();
  wait_for(router, [](const ClusterStatus& status) { return !status.shards[1].serving; });
  // Acknowledged although shard 1 has nobody, whose documents are missing until it is back.
  put_acknowledged(router, {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  EXPECT_EQ(search(router, unit_vector(1), 1).status().code(), absl::StatusCode::kUnavailable);
  shards_[2]->start();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  for (uint64_t number = 1; number <= 8; ++number) expect_found(router, number, 1);
  // A shard that has lost everything.
  shards_[2]->stop();
  std::filesystem::remove_all(shards_[2]->folder());
  wait_for(router, [](const ClusterStatus& status) { return !status.shards[1].serving; });
  shards_[2]->start();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  for (uint64_t number = 1; number <= 8; ++number) expect_found(router, number, 1);
}

TEST_F(Cluster, SetsADamagedIndexAsideAndFillsItAnew) {
  Router& router = start_cluster();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  put_acknowledged(router, {1, 2, 3, 4, 5, 6, 7, 8});
  shards_[2]->stop();
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shards_[2]->folder() + "/shard")) {
    if (entry.path().extension() != ".index") continue;
    std::ofstream(entry.path(), std::ios::app) << "x";
    ++damaged;
  }
  EXPECT_EQ(damaged, 1);
  shards_[2]->start();
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
  for (uint64_t number = 1; number <= 8; ++number) expect_found(router, number);
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shards_[2]->folder() + "/shard")) {
    aside += entry.path().extension() == ".bad";
  }
  EXPECT_EQ(aside, 1);
}

TEST_F(Cluster, EndsTheWaitForAShardThatCannotWrite) {
  auto shard = LocalShard::open({.folder = folder_ + "/whole"}, pool_);
  ASSERT_TRUE(shard.ok()) << shard.status();
  std::filesystem::remove_all(folder_ + "/whole");
  Router& router =
      start_router("router", {{{"whole", std::shared_ptr<LocalShard>(*std::move(shard))}}});
  EXPECT_THAT(router.wait_until_ready(std::chrono::milliseconds(300)).ToString(),
              AllOf(HasSubstr("UNAVAILABLE: shard 0"), HasSubstr("cannot create"),
                    HasSubstr(folder_ + "/whole/")));
  std::filesystem::create_directories(folder_ + "/whole");
  EXPECT_TRUE(router.wait_until_ready(kPatience).ok());
}

TEST_F(Cluster, RefusesShardsThatAreWiredUpWrongly) {
  ShardProcess& first = start_shard("shard0", 0, 2);
  ShardProcess& second = start_shard("shard1", 1, 2);
  const auto reason = [this](Router& router) {
    std::string text;
    wait_for(router, [&text](const ClusterStatus& status) {
      text = status.shards.empty() ? "" : status.shards[0].reason;
      return text.find("shard ") != std::string::npos || text.find("store") != std::string::npos;
    });
    return text;
  };
  EXPECT_THAT(reason(start_router("swapped", {{second.endpoint()}, {first.endpoint()}})),
              AllOf(HasSubstr(second.address()), HasSubstr("this is shard 1 of 2"),
                    HasSubstr("as shard 0 of 2")));
  EXPECT_THAT(reason(start_router("alone", {{first.endpoint()}})),
              AllOf(HasSubstr("this is shard 0 of 2"), HasSubstr("as shard 0 of 1")));
  Router& good = start_router("good", {{first.endpoint()}, {second.endpoint()}});
  EXPECT_TRUE(good.wait_until_ready(kPatience).ok());
  put_acknowledged(good, {1, 2, 3, 4});
  routers_.clear();
  open_store("another");
  EXPECT_THAT(reason(start_router("foreign", {{first.endpoint()}, {second.endpoint()}})),
              AllOf(HasSubstr("of document store"), HasSubstr("the router's is"),
                    HasSubstr(first.folder())));
}

TEST_F(Cluster, GivesTheResultsOfOneUnshardedIndex) {
  constexpr uint64_t kDocuments = 3000;
  std::vector<uint64_t> numbers;
  for (uint64_t number = 1; number <= kDocuments; ++number) numbers.push_back(number);
  put(numbers);
  using Kind = IndexOptions::Kind;
  for (const Kind kind : {Kind::kExact, Kind::kIvfFlat, Kind::kIvfPq, Kind::kIvfSq8}) {
    SCOPED_TRACE(std::string(index_kind_name(kind)));
    const IndexOptions options = {.kind = kind, .ivf_lists = 32, .ivf_probes = 4, .pq_bits = 4};
    Router& sharded = start_cluster(options);
    auto whole = LocalShard::open({.folder = folder_ + "/whole"}, pool_);
    ASSERT_TRUE(whole.ok()) << whole.status();
    Router& unsharded = start_router(
        "unsharded", {{{"whole", std::shared_ptr<LocalShard>(*std::move(whole))}}}, options);
    for (Router* router : {&sharded, &unsharded}) {
      wait_for(*router, [&](const ClusterStatus&) {
        return router->index_kind(corpus_) == index_kind_name(kind) && router->ready().ok();
      });
    }
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const auto a = search(sharded, unit_vector(10'000'000 + seed), 10);
      const auto b = search(unsharded, unit_vector(10'000'000 + seed), 10);
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      ASSERT_EQ(a->size(), b->size());
      for (size_t i = 0; i < a->size(); ++i) {
        ASSERT_EQ(a->at(i).document.id, b->at(i).document.id) << "seed " << seed << ", " << i;
        ASSERT_EQ(a->at(i).score, b->at(i).score);
      }
    }
    routers_.clear();
    shards_.clear();
    for (const char* name : {"router", "unsharded", "whole", "shard0", "shard1", "replica0"}) {
      std::filesystem::remove_all(folder_ + "/" + name);
    }
  }
}

}  // namespace
}  // namespace ragcache::retrieval
