#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "services/controller/tree/knowledge_tree.h"

namespace ragcache::controller {

void KnowledgeTree::check_invariants() const {
  struct Counts {
    uint32_t children = 0, device = 0, host = 0;
  };
  absl::flat_hash_map<const Node*, Counts> below;
  uint32_t device_blocks = 0, pinned_blocks = 0, host_blocks = 0, alone_blocks = 0, copy_blocks = 0;
  uint64_t device_tokens = 0, host_tokens = 0, cached_tokens = 0;
  size_t pinned = 0, kept = 0;
  std::array<size_t, kCandidateKinds> candidates{};
  for (const Node* each : nodes_) {
    const Node& node = *each;
    RAG_CHECK(node.blocks == blocks_of(node.tokens));
    RAG_CHECK(!is_nowhere(node) || node.users > 0);
    RAG_CHECK(node.device != Residence::kPending || node.users > 0);
    if (node.device == Residence::kReady) {
      device_blocks += node.blocks;
      device_tokens += node.tokens;
      if (node.users > 0) pinned_blocks += node.blocks;
    }
    if (is_there(node.host)) {
      host_blocks += node.blocks;
      host_tokens += node.tokens;
      if (is_alone(node)) alone_blocks += node.blocks;
      if (is_copied(node)) copy_blocks += node.blocks;
    }
    if (node.device == Residence::kReady || is_there(node.host)) cached_tokens += node.tokens;
    if (node.users > 0) ++pinned;
    if (node.kept) ++kept;
    if (const Node* parent = node.parent) {
      RAG_CHECK(find(parent->id) == parent);
      RAG_CHECK(!is_there(node.device) || is_there(parent->device));
      RAG_CHECK(node.device != Residence::kReady || parent->device == Residence::kReady);
      RAG_CHECK(!is_there(node.host) || is_there(parent->host));
      RAG_CHECK(node.users == 0 || parent->users > 0);
      Counts& counts = below[parent];
      ++counts.children;
      counts.device += is_there(node.device);
      counts.host += is_there(node.host);
    }
    for (size_t kind = 0; kind < kCandidateKinds; ++kind) {
      RAG_CHECK(candidates_[kind].contains(node) == may_go(node, static_cast<CandidateKind>(kind)));
      candidates[kind] += candidates_[kind].contains(node);
    }
  }
  for (const Node* node : nodes_) {
    const Counts& counts = below[node];
    RAG_CHECK(node->children == counts.children && node->device_children == counts.device);
    RAG_CHECK(node->host_children == counts.host);
  }
  for (size_t kind = 0; kind < kCandidateKinds; ++kind) {
    RAG_CHECK(candidates[kind] == candidates_[kind].size() && candidates_[kind].ordered());
  }
  RAG_CHECK(device_blocks == device_blocks_ && pinned_blocks == pinned_blocks_);
  RAG_CHECK(host_blocks == host_blocks_ && host_blocks <= host_total_);
  RAG_CHECK(alone_blocks == alone_blocks_ && copy_blocks == copy_blocks_);
  RAG_CHECK(device_tokens == device_tokens_ && host_tokens == host_tokens_);
  RAG_CHECK(cached_tokens == cached_tokens_ && pinned == pinned_nodes_ && kept == kept_nodes_);
}

}  // namespace ragcache::controller
