#include "loadgen/policy/replay.h"

#include <algorithm>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/clock.h"

namespace ragcache::loadgen {
namespace {

using controller::KnowledgeTree;
using controller::Move;
using controller::SegmentSpec;

uint32_t blocks_in(uint64_t tokens, uint32_t block_tokens) {
  return static_cast<uint32_t>(std::min<uint64_t>(tokens / block_tokens, UINT32_MAX / 2));
}

class Replay {
 public:
  Replay(const Prefixes& prefixes, controller::EvictionPolicy& policy,
         const controller::PrefillSeconds& prefill_seconds, const ReplayOptions& options)
      : prefixes_(prefixes),
        prefill_seconds_(prefill_seconds),
        options_(options),
        waiting_(policy.looks_ahead() ? options.waiting : 0),
        device_blocks_(blocks_in(options.device_tokens, options.block_tokens) + 1),
        tree_(policy, options.block_tokens,
              options.host_tokens < options.block_tokens
                  ? 0
                  : blocks_in(options.host_tokens, options.block_tokens) + 1) {}

  ReplayCounts run() {
    keep_root();
    for (size_t i = 0; i < std::min<size_t>(waiting_, prefixes_.chains.size()); ++i) {
      tree_.expect(prefixes_.chains[i]);
    }
    const TimePoint start = steady_now();
    for (size_t i = 0; i < prefixes_.chains.size(); ++i) {
      if (waiting_ > 0) {
        tree_.unexpect(prefixes_.chains[i]);
        if (i + waiting_ < prefixes_.chains.size()) tree_.expect(prefixes_.chains[i + waiting_]);
      }
      serve(prefixes_.chains[i]);
    }
    counts_.ns_per_request = static_cast<double>((steady_now() - start).count()) /
                             static_cast<double>(prefixes_.chains.size());
    const KnowledgeTree::Evictions& evictions = tree_.evictions();
    counts_.evictions = evictions.demoted + evictions.freed + evictions.host;
    return counts_;
  }

 private:
  void keep_root() {
    const auto root = std::span(prefixes_.chains.front()).first(1);
    tree_.acquire(root, std::nullopt);
    tree_.set_on_device(root[0].id);
    tree_.release(root);
    for (const Move& move : tree_.replicate(root[0].id, false)) tree_.set_on_host(move.id);
    tree_.keep(root, true);
  }

  void serve(std::span<const SegmentSpec> chain) {
    const KnowledgeTree::Match match = tree_.match(chain);
    uint32_t cached_tokens = 0;
    uint32_t all_tokens = 0;
    uint32_t new_blocks = 0;  // on the device
    size_t fitting = 0;
    uint32_t blocks = 0;
    for (size_t i = 0; i < chain.size(); ++i) {
      const uint32_t tokens = chain[i].tokens;
      blocks += tree_.blocks_of(tokens);
      if (blocks <= device_blocks_) fitting = i + 1;
      if (i >= match.device && i < fitting) new_blocks += tree_.blocks_of(tokens);
      if (i > 0) count(tokens, i < match.device, i < match.cached());
      all_tokens += tokens;
      if (i < match.cached()) cached_tokens += tokens;
      if (i >= match.device && i < match.cached() && i < fitting) {
        counts_.bytes_moved += bytes_of(tree_.blocks_of(tokens));
      }
    }
    counts_.cached_tokens.push_back(cached_tokens - chain[0].tokens);
    chain = chain.first(fitting);
    const auto cached = chain.first(std::min(fitting, match.cached()));
    tree_.hold(cached);
    const uint32_t free = device_blocks_ - tree_.device_blocks();
    if (new_blocks > free) {
      carry_out(tree_.evict(new_blocks - free));
    }
    RAG_CHECK(tree_.device_blocks() + new_blocks <= device_blocks_);
    const uint32_t new_tokens = all_tokens - cached_tokens;
    tree_.acquire(chain,
                  controller::RequestCost{prefill_seconds_(cached_tokens, new_tokens), new_tokens});
    // As the group's actor does: what is asked for again is worth a copy, what is new gets one
    // where there is room.
    for (size_t i = 0; i < std::min(match.device, fitting); ++i) {
      carry_out(tree_.replicate(chain[i].id, true));
    }
    for (size_t i = match.device; i < chain.size(); ++i) {
      tree_.set_on_device(chain[i].id);
      carry_out(tree_.replicate(chain[i].id, false));
    }
    tree_.release(chain);
    tree_.release(cached);
  }

  void carry_out(const std::vector<Move>& moves) {
    for (const Move& move : moves) {
      if (move.kind != Move::Kind::kReplicate) continue;
      tree_.set_on_host(move.id);
      counts_.bytes_moved += bytes_of(move.blocks);
    }
  }

  uint64_t bytes_of(uint32_t blocks) const {
    return uint64_t{blocks} * options_.block_tokens * options_.bytes_per_token;
  }

  void count(uint32_t tokens, bool on_device, bool is_cached) {
    ++counts_.documents;
    counts_.tokens += tokens;
    if (!is_cached) return;
    ++counts_.document_hits;
    counts_.token_hits += tokens;
    if (on_device) counts_.device_token_hits += tokens;
  }

  const Prefixes& prefixes_;
  const controller::PrefillSeconds& prefill_seconds_;
  const ReplayOptions& options_;
  const uint32_t waiting_;
  const uint32_t device_blocks_;
  KnowledgeTree tree_;
  ReplayCounts counts_;
};

}  // namespace

ReplayCounts replay(const Prefixes& prefixes, controller::EvictionPolicy& policy,
                    const controller::PrefillSeconds& prefill_seconds,
                    const ReplayOptions& options) {
  return Replay(prefixes, policy, prefill_seconds, options).run();
}

}  // namespace ragcache::loadgen
