// The router's actors in virtual time, with shards that crash, forget what they had not saved, are
// slow, lose and reorder calls, a store whose log forgets, new generations of the index and routers
// that die, all from one seed. Each failure prints its seed; run one seed with RAG_SIM_SEED, more
// of them with RAG_SIM_RUNS.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/actor/sim_runtime.h"
#include "common/strings.h"
#include "services/retrieval/router/replication_actor.h"
#include "services/retrieval/router/search_actor.h"
#include "tests/sim/retrieval_fakes.h"

namespace ragcache::retrieval::sim {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kCorpora[] = {1, 2};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : runtime_(seed) {
    const uint32_t shards = 1 + static_cast<uint32_t>(below(3));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      replicas_.push_back(1 + static_cast<uint32_t>(below(2)));
      std::vector<std::shared_ptr<FakeShard>>& of_shard = shards_.emplace_back();
      for (uint32_t replica = 0; replica < replicas_.back(); ++replica) {
        of_shard.push_back(std::make_shared<FakeShard>(runtime_, shard));
      }
    }
    store_ = std::make_unique<FakeStore>(runtime_, shards);
    metrics_ = std::make_shared<ShardMetrics>(registry_, replicas_);
    for (const int64_t corpus : kCorpora) generations_[corpus] = {++last_generation_};
  }

  void run(int steps) {
    start_router();
    for (int step = 0; step < steps; ++step) {
      switch (below(12)) {
        case 0:
        case 1:
        case 2:
        case 3:
          write();
          break;
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
          search();
          break;
        case 9:
          disturb();
          break;
        case 10:
          if (below(5) == 0) add_generation();
          break;
        default:
          if (below(15) == 0) replace_router();
      }
      advance(milliseconds(below(20)));
      if (below(30) == 0) advance(std::chrono::seconds(below(8)));
      if (::testing::Test::HasFailure()) return;
    }
    settle();
  }

  int searches_ = 0;
  int answered_ = 0;
  int commits_ = 0;
  int acknowledged_ = 0;
  int switches_ = 0;

 private:
  uint64_t below(uint64_t bound) { return runtime_.random()() % bound; }

  void advance(Duration time) {
    const TimePoint until = runtime_.now() + time;
    bool reached = false;
    clock_.send_after(time, Later::Run{[&reached] { reached = true; }});
    while (!reached && runtime_.step()) {
    }
    EXPECT_GE(runtime_.now(), until);
  }

  void start_router() {
    ++router_;
    router_lives_ = std::make_shared<bool>(true);
    std::vector<std::vector<ReplicaEndpoint>> endpoints;
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      std::vector<ReplicaEndpoint>& of_shard = endpoints.emplace_back();
      for (size_t replica = 0; replica < shards_[shard].size(); ++replica) {
        of_shard.push_back(
            {str_cat("s", shard, "r", replica),
             std::make_shared<FakeConnection>(shards_[shard][replica], router_lives_)});
      }
    }
    const auto observer = ReplicationActor::Observer::of_functions(
        [this, router = router_](ClusterStatus status) {
          if (router == router_) status_ = std::move(status);
        },
        [this, router = router_](GenerationServing serving) {
          if (router != router_) return;
          ++switches_;
          std::vector<uint64_t>& generations = generations_[serving.corpus];
          EXPECT_EQ(generations.size(), 2u);
          generations.erase(generations.begin());
          EXPECT_EQ(generations[0], serving.generation);
        },
        [](GenerationWasteful) { FAIL() << "no index is wasteful"; });
    replication_ = runtime_.spawn<ReplicationActor>(std::move(endpoints), Digest{}, *store_,
                                                    metrics_, observer);
    for (const int64_t corpus : kCorpora) {
      std::vector<Generation> generations;
      for (const uint64_t number : generations_[corpus]) {
        generations.push_back({number, std::make_shared<IndexSpec>()});
      }
      replication_.send(OpenCorpus{corpus, std::move(generations), store_->sequence(corpus)});
      acknowledged_at_[corpus] = store_->sequence(corpus);
    }
    replication_.send(ReplicationActor::Start{});
    dependencies_ = std::make_shared<SearchActor::Dependencies>(
        SearchActor::Dependencies{replication_, *store_, metrics_, milliseconds(300)});
    advance(milliseconds(10));  // a search does not overtake the corpora
  }

  void replace_router() {
    *router_lives_ = false;
    start_router();
  }

  void write() {
    const int64_t corpus = kCorpora[below(2)];
    std::map<int, std::optional<Vector>> changes;
    for (uint64_t count = 1 + below(3); count > 0; --count) {
      std::optional<Vector>& values = changes[static_cast<int>(below(kDocuments))];
      if (below(4) == 0) continue;
      values.emplace();
      for (size_t i = 0; i < kDimension; ++i) values->push_back(static_cast<float>(below(4)));
    }
    const uint64_t sequence = store_->commit(corpus, changes);
    ++commits_;
    replication_.send(Committed{corpus, sequence,
                                Address<CommitAcknowledged>::of_functions(
                                    [this, router = router_, corpus, sequence](CommitAcknowledged) {
                                      if (router != router_) return;
                                      ++acknowledged_;
                                      acknowledged_at_[corpus] =
                                          std::max(acknowledged_at_[corpus], sequence);
                                    })});
  }

  void search() {
    const int64_t corpus = kCorpora[below(2)];
    SearchQuery query{.corpus = corpus, .k = 1 + below(6), .timeout = milliseconds(2000)};
    for (size_t i = 0; i < kDimension; ++i) {
      query.vector.push_back(static_cast<float>(below(3)));
    }
    if (below(3) == 0) {
      query.select = [this, corpus](Shard::Done<Selection> done) {
        store_->select(corpus, std::move(done));
      };
    }
    ++searches_;
    const auto reply = Address<SearchDone>::of_functions(
        [this, router = router_, corpus, query, from = acknowledged_at_[corpus]](SearchDone done) {
          if (router == router_) judge(corpus, query, from, done);
        });
    auto search = runtime_.spawn<SearchActor>(
        std::shared_ptr<const SearchActor::Dependencies>(dependencies_), query, reply);
    search.send(SearchActor::Start{});
    if (below(20) == 0) search.send(SearchActor::Cancel{});
  }

  // `from`: what was acknowledged when the search began. Each document may be seen as it was then
  // or as anything it became since.
  void judge(int64_t corpus, const SearchQuery& query, uint64_t from, const SearchDone& done) {
    if (!done.found.ok()) {
      const absl::StatusCode code = done.found.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kUnavailable ||
                  code == absl::StatusCode::kDeadlineExceeded ||
                  code == absl::StatusCode::kCancelled)
          << done.found.status();
      return;
    }
    ++answered_;
    const std::vector<FoundDocument>& found = *done.found;
    ASSERT_LE(found.size(), query.k);
    const auto before = [](float score, const std::string& id, const FoundDocument& other) {
      return score > other.score || (score == other.score && id < other.document.id);
    };
    const auto is_there = [&query](const FakeStore::Version& version) {
      return version.vector != 0 && (query.select == nullptr || is_allowed(version.values));
    };
    std::set<std::string> seen;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(seen.insert(found[i].document.id).second) << "twice: " << found[i].document.id;
      if (i > 0) {
        EXPECT_TRUE(before(found[i - 1].score, found[i - 1].document.id, found[i]));
      }
    }
    for (int document = 0; document < kDocuments; ++document) {
      const std::vector<FakeStore::Version> versions = store_->since(corpus, document, from);
      const auto hit = std::ranges::find(
          found, name_of(document), [](const FoundDocument& each) { return each.document.id; });
      if (hit != found.end()) {
        EXPECT_TRUE(std::ranges::any_of(
            versions,
            [&](const FakeStore::Version& version) {
              return is_there(version) && std::to_string(version.vector) == hit->document.text &&
                     score_of(query.vector, version.values) == hit->score;
            }))
            << name_of(document) << " in a version that was not there";
        continue;
      }
      const bool may_be_missing =
          std::ranges::any_of(versions, [&](const FakeStore::Version& version) {
            if (!is_there(version)) return true;
            return found.size() == query.k &&
                   !before(score_of(query.vector, version.values), name_of(document), found.back());
          });
      EXPECT_TRUE(may_be_missing) << name_of(document) << " was not found";
    }
  }

  void disturb() {
    std::vector<std::shared_ptr<FakeShard>>& replicas = shards_[below(shards_.size())];
    FakeShard& shard = *replicas[below(replicas.size())];
    switch (below(5)) {
      case 0:
        shard.crash();
        break;
      case 1:
        shard.set_slow(true);
        break;
      case 2:
        shard.crash();
        shard.restart();
        break;
      default:
        heal();
    }
  }

  void heal() {
    for (auto& replicas : shards_) {
      for (auto& replica : replicas) {
        replica->restart();
        replica->set_slow(false);
      }
    }
  }

  void add_generation() {
    const int64_t corpus = kCorpora[below(2)];
    if (generations_[corpus].size() == 2) return;
    generations_[corpus].push_back(++last_generation_);
    replication_.send(AddGeneration{corpus, {last_generation_, std::make_shared<IndexSpec>()}});
  }

  // With nothing failing any more, everything that was committed is everywhere and is found.
  void settle() {
    heal();
    for (auto& replicas : shards_) {
      for (auto& replica : replicas) replica->set_reliable();
    }
    advance(std::chrono::seconds(90));
    for (const ShardStatus& shard : status_.shards) EXPECT_TRUE(shard.serving) << shard.reason;
    for (const int64_t corpus : kCorpora) {
      ASSERT_EQ(generations_[corpus].size(), 1u);
      for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
        std::map<int64_t, Vector> expected;
        for (int document = 0; document < kDocuments; ++document) {
          const FakeStore::Version version = store_->current(corpus, document);
          if (version.vector != 0 && store_->shard_of(document) == shard) {
            expected[version.vector] = version.values;
          }
        }
        for (const auto& replica : shards_[shard]) {
          EXPECT_EQ(replica->vectors({corpus, generations_[corpus][0]}), expected);
        }
      }
      acknowledged_at_[corpus] = store_->sequence(corpus);
    }
    const int before = answered_;
    for (int i = 0; i < 20; ++i) {
      search();
      advance(milliseconds(100));
    }
    EXPECT_GE(answered_ - before, 10);  // the others were cancelled
  }

  SimRuntime runtime_;
  prometheus::Registry registry_;
  const ActorRef<Later> clock_ = runtime_.spawn<Later>();
  std::vector<uint32_t> replicas_;
  std::vector<std::vector<std::shared_ptr<FakeShard>>> shards_;
  std::unique_ptr<FakeStore> store_;
  std::shared_ptr<ShardMetrics> metrics_;
  int router_ = 0;
  std::shared_ptr<bool> router_lives_;
  ActorRef<ReplicationActor> replication_;
  std::shared_ptr<const SearchActor::Dependencies> dependencies_;
  ClusterStatus status_;
  std::map<int64_t, std::vector<uint64_t>> generations_;
  uint64_t last_generation_ = 0;
  std::map<int64_t, uint64_t> acknowledged_at_;
};

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(RetrievalSimulation, FindsExactlyWhatWasAcknowledgedWhateverFails) {
  const uint64_t first = number_from("RAG_SIM_SEED", 1);
  const uint64_t runs =
      number_from("RAG_SIM_RUNS", std::getenv("RAG_SIM_SEED") == nullptr ? 100 : 1);
  int searches = 0, answered = 0, commits = 0, acknowledged = 0, switches = 0;
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE("RAG_SIM_SEED=" + std::to_string(seed));
    Simulation simulation(seed);
    simulation.run(400);
    searches += simulation.searches_;
    answered += simulation.answered_;
    commits += simulation.commits_;
    acknowledged += simulation.acknowledged_;
    switches += simulation.switches_;
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << runs << " seeds from " << first << ", " << answered << " of " << searches
            << " searches answered, " << acknowledged << " of " << commits
            << " commits acknowledged, " << switches << " generations replaced\n";
  // What is not exercised is not tested.
  EXPECT_GT(answered, searches / 3);
  EXPECT_GT(acknowledged, commits / 2);
  if (runs >= 100) {
    EXPECT_GT(switches, static_cast<int>(runs));
  }
}

}  // namespace
}  // namespace ragcache::retrieval::sim
