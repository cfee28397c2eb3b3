#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <random>

#include "services/controller/tree/knowledge_tree.h"
#include "services/controller/tree/reference_tree.h"

namespace ragcache::controller {
namespace {

class FicklePolicy : public EvictionPolicy {
 public:
  std::string_view name() const override { return "fickle"; }
  void on_request() override { ++requests_; }
  void on_access(const NodeAccess& access) override { ++accesses_[access.id]; }
  double priority(const SegmentId& id, uint32_t, Tier tier) override {
    auto it = accesses_.find(id);
    return ReferenceFickle::priority_of(id, it == accesses_.end() ? 0 : it->second, epoch(), tier);
  }
  void on_leave(const SegmentId& id) override { accesses_.erase(id); }
  void clear() override { accesses_.clear(); }
  bool admits_to_host(double priority, double victim) const override { return priority > victim; }
  double copy_worth(double priority) const override { return priority - 30; }
  uint64_t epoch() const override { return requests_ / ReferenceFickle::kEpochRequests; }

 private:
  uint64_t requests_ = 0;
  std::map<SegmentId, uint64_t> accesses_;
};

struct Pair {
  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ReferencePolicy> reference;
};

Pair make_pair_of(const std::string& name, bool remember) {
  PolicyOptions options{.remember = remember, .history_limit = 40, .window_requests = 50};
  options.prefill_seconds = [](uint32_t, uint32_t tokens) { return ReferenceGdsf::cost(tokens); };
  const size_t limit = remember ? options.history_limit : 0;
  if (name == "fickle") {
    return {std::make_unique<FicklePolicy>(), std::make_unique<ReferenceFickle>(0)};
  }
  Pair pair{*make_policy(name, options), nullptr};
  if (name == "lru") pair.reference = std::make_unique<ReferenceLru>(0);
  if (name == "lfu") pair.reference = std::make_unique<ReferenceLfu>(limit);
  if (name == "gdsf") pair.reference = std::make_unique<ReferenceGdsf>(limit);
  if (name == "adaptive") pair.reference = std::make_unique<ReferenceAdaptive>(limit);
  if (name == "pgdsf") {
    pair.reference = std::make_unique<ReferencePgdsf>(limit, options.window_requests);
  }
  return pair;
}

uint64_t operations() {
  const char* text = std::getenv("RAG_TREE_OPS");
  return text == nullptr ? 60'000 : std::strtoull(text, nullptr, 10);
}

// One policy's share of the random operations.
class RandomOperations {
 public:
  RandomOperations(Pair pair, uint32_t host_blocks, uint64_t seed)
      : pair_(std::move(pair)),
        random_(seed),
        tree_(*pair_.policy, kBlockTokens, host_blocks),
        reference_(*pair_.reference, host_blocks) {}

  void run(uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      step();
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(tree_.node_count(), reference_.size()) << "step " << i;
      ASSERT_EQ(tree_.device_blocks(), reference_.device_blocks());
      ASSERT_EQ(tree_.host_blocks(), reference_.host_blocks());
      ASSERT_EQ(tree_.evictable_blocks(), reference_.evictable_blocks());
      if (i % 100 == 0) tree_.check_invariants();
    }
  }

 private:
  struct Running {
    std::string path;
    size_t ready;
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  std::string any_path() {
    std::string path = below(5) == 0 ? "T" : "S";
    for (uint64_t depth = below(4); depth > 0; --depth) {
      path += static_cast<char>('A' + std::min(below(6), below(6)));
    }
    return path;
  }
  std::string any_node() {
    const auto paths = reference_.paths();
    return paths.empty() ? "S" : paths[below(paths.size())];
  }

  void step() {
    const std::string path = any_path();
    const auto chain = chain_of(path);
    const KnowledgeTree::Match match = tree_.match(chain);
    const KnowledgeTree::Match expected = reference_.match(path);
    ASSERT_EQ(match.device, expected.device);
    ASSERT_EQ(match.host, expected.host);
    ASSERT_EQ(match.pending, expected.pending);

    const uint64_t action = below(100);
    if (action < 30) {
      if (running_.size() < 6 && !match.pending) acquire(path, match);
    } else if (action < 36) {
      const std::string cached = path.substr(0, match.cached());
      if (running_.size() < 6) {
        tree_.hold(chain_of(cached));
        reference_.hold(cached);
        running_.push_back({cached, cached.size()});
      }
    } else if (action < 60) {
      if (!running_.empty()) compute(running_[below(running_.size())]);
    } else if (action < 78) {
      if (!running_.empty()) {
        const size_t index = below(running_.size());
        tree_.release(chain_of(running_[index].path));
        reference_.release(running_[index].path);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
      }
    } else if (action < 90) {
      const auto blocks = static_cast<uint32_t>(below(8));
      compare(tree_.evict(blocks), reference_.evict(blocks));
    } else if (action < 92) {
      const std::string node = any_node();
      const bool make_room = below(2) == 0;
      compare(tree_.replicate(id_of(node), make_room), reference_.replicate(node, make_room));
    } else if (action < 94) {
      expect(path);
    } else if (action < 96) {
      const bool kept = below(4) == 0;
      const std::string node = any_node();
      ASSERT_EQ(tree_.keep(chain_of(node), kept), reference_.keep(node, kept));
    } else if (action < 98) {
      const std::string node = any_node();
      const Tier tier = below(2) == 0 ? Tier::kDevice : Tier::kHost;
      compare(tree_.lose(id_of(node), tier), reference_.lose(node, tier));
    } else if (action < 99) {
      const bool on_device = below(2) == 0;
      const bool on_host = !on_device || below(2) == 0;
      const SegmentId parent = path.size() > 1 ? chain[path.size() - 2].id : SegmentId{};
      ASSERT_EQ(tree_.restore(chain.back(), parent, path.size() == 1, on_device, on_host),
                reference_.restore(path, on_device, on_host));
    } else if (below(20) == 0) {
      compare(tree_.clear(), reference_.clear());
    }
  }

  void acquire(const std::string& path, const KnowledgeTree::Match& match) {
    std::optional<RequestCost> cost;
    const auto new_tokens = static_cast<uint32_t>(below(500));
    if (below(10) > 0) cost = RequestCost{static_cast<double>(1 + below(1000)) / 64, new_tokens};
    tree_.acquire(chain_of(path), cost);
    reference_.acquire(path, cost);
    running_.push_back({path, match.device});
  }

  void compute(Running& request) {
    if (request.ready == request.path.size()) return;
    const std::string next = request.path.substr(0, ++request.ready);
    ASSERT_EQ(tree_.set_on_device(id_of(next)), reference_.set_on_device(next));
  }

  void expect(const std::string& path) {
    if (waiting_.size() < 4) {
      tree_.expect(chain_of(path));
      reference_.expect(path, 1);
      waiting_.push_back(path);
    } else {
      tree_.unexpect(chain_of(waiting_.front()));
      reference_.expect(waiting_.front(), -1);
      waiting_.pop_front();
    }
  }

  void compare(const std::vector<Move>& moves, const std::vector<Move>& expected) {
    ASSERT_EQ(moves, expected);
    for (const std::string& path : reference_.paths()) {  // copies take a while, some longer
      if (below(3) > 0) continue;
      tree_.set_on_host(id_of(path));
      reference_.set_on_host(path);
    }
  }

  Pair pair_;
  std::mt19937_64 random_;
  KnowledgeTree tree_;
  ReferenceTree reference_;
  std::vector<Running> running_;
  std::deque<std::string> waiting_;
};

TEST(KnowledgeTree, AgreesWithAPlainModelOverRandomOperations) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  std::cout << "seed " << seed << " (--gtest_random_seed), " << operations()
            << " operations (RAG_TREE_OPS)\n";
  const std::vector<std::pair<std::string, bool>> policies{
      {"lru", true},       {"lfu", true},    {"lfu", false},   {"gdsf", true},
      {"gdsf", false},     {"pgdsf", true},  {"pgdsf", false}, {"adaptive", true},
      {"adaptive", false}, {"fickle", false}};
  const std::vector<uint32_t> hosts{0, 4, 12, 40};
  uint64_t part = 0;
  for (const auto& [name, remember] : policies) {
    for (const uint32_t host_blocks : hosts) {
      SCOPED_TRACE(name + (remember ? ", remembering" : ", forgetting") + ", host of " +
                   std::to_string(host_blocks));
      RandomOperations operations_of_part(make_pair_of(name, remember), host_blocks,
                                          seed * 1000 + part++);
      operations_of_part.run(operations() / (policies.size() * hosts.size()));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ragcache::controller
