// A tree of a million nodes: how long a match takes, how long a new document that drives out an old
// one, and how many bytes a node has. Targets: 2 µs, 5 µs, 300 bytes.

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstring>
#include <random>
#include <vector>

#include "services/controller/tree/knowledge_tree.h"

namespace ragcache::controller {
namespace {

constexpr size_t kNodes = 1'000'000;
constexpr size_t kDocuments = 5;  // of a chain, under the root
constexpr uint32_t kTokens = 200;
constexpr size_t kFresh =
    256;  // made at once: few enough to be in the cache, as a request's own are

size_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

class Tree {
 public:
  Tree(const std::string& policy, uint32_t host_blocks)
      : policy_(*make_policy(policy)), tree_(*policy_, 16, host_blocks) {
    chains_.reserve(kNodes / kDocuments);
    for (size_t i = 0; i < kNodes / kDocuments; ++i) chains_.push_back(new_chain(kDocuments));
    const size_t before = allocated_bytes();
    for (const auto& chain : chains_) use(chain);
    bytes_per_node_ = static_cast<double>(allocated_bytes() - before) / kNodes;
  }

  std::vector<SegmentSpec> new_chain(size_t documents) {
    std::vector<SegmentSpec> chain{root_};
    for (size_t i = 0; i < documents; ++i) chain.push_back(new_segment());
    return chain;
  }

  void use(const std::vector<SegmentSpec>& chain) {
    tree_.acquire(chain, RequestCost{0.1, kTokens});
    for (const SegmentSpec& spec : chain) tree_.set_on_device(spec.id);
    tree_.release(chain);
  }

  // Chains of the tree, in no order.
  std::vector<std::vector<SegmentSpec>> some_chains() {
    std::vector<std::vector<SegmentSpec>> some;
    for (size_t i = 0; i < 1 << 16; ++i) some.push_back(chains_[random_() % chains_.size()]);
    return some;
  }
  KnowledgeTree& tree() { return tree_; }
  double bytes_per_node() const { return bytes_per_node_; }

 private:
  SegmentSpec new_segment() {
    const uint64_t bits[2] = {random_(), random_()};
    SegmentSpec spec{SegmentId{}, kTokens, std::string(36, 'd')};  // as long as a UUID
    std::memcpy(spec.id.bytes.data(), bits, sizeof(bits));
    return spec;
  }

  std::mt19937_64 random_{1};
  const SegmentSpec root_ = new_segment();
  std::unique_ptr<EvictionPolicy> policy_;
  KnowledgeTree tree_;
  std::vector<std::vector<SegmentSpec>> chains_;
  double bytes_per_node_ = 0;
};

void match(benchmark::State& state, const std::string& policy) {
  Tree tree(policy, 0);
  const auto chains = tree.some_chains();
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(tree.tree().match(chains[next++ % chains.size()]));
  }
  state.counters["bytes_per_node"] = tree.bytes_per_node();
}

void insert_and_evict(benchmark::State& state, const std::string& policy, uint32_t host_blocks) {
  Tree tree(policy, host_blocks);
  std::vector<std::vector<SegmentSpec>> fresh;
  const uint32_t blocks = tree.tree().blocks_of(kTokens);
  size_t next = 0;
  for (auto _ : state) {
    if (next == fresh.size()) {
      state.PauseTiming();
      fresh.clear();
      for (next = 0; fresh.size() < kFresh;) fresh.push_back(tree.new_chain(1));
      state.ResumeTiming();
    }
    tree.use(fresh[next++]);
    for (const Move& move : tree.tree().evict(blocks)) {
      if (move.kind == Move::Kind::kReplicate) tree.tree().set_on_host(move.id);
    }
  }
  state.counters["bytes_per_node"] = tree.bytes_per_node();
}

BENCHMARK_CAPTURE(match, lru, "lru");
BENCHMARK_CAPTURE(insert_and_evict, lru, "lru", 0);
BENCHMARK_CAPTURE(insert_and_evict, pgdsf, "pgdsf", 0);
BENCHMARK_CAPTURE(insert_and_evict, adaptive, "adaptive", 0);
BENCHMARK_CAPTURE(insert_and_evict, adaptive_and_host, "adaptive", 1'000'000);

}  // namespace
}  // namespace ragcache::controller

BENCHMARK_MAIN();
