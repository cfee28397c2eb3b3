#include "loadgen/policy/prefixes.h"

#include "absl/container/flat_hash_map.h"
#include "common/hash.h"

namespace ragcache::loadgen {

using controller::SegmentSpec;

Prefixes prefixes_of(const Trace& trace, uint32_t block_tokens) {
  const SegmentSpec root{SegmentId::root(sha256(trace.name), ""), 1};
  std::vector<Digest> digests;
  digests.reserve(trace.documents.size());
  for (const TraceDocument& document : trace.documents) digests.push_back(sha256(document.id));

  Prefixes prefixes;
  for (const auto& request : trace.requests) {
    std::vector<SegmentSpec>& chain = prefixes.chains.emplace_back();
    chain.push_back(root);
    for (const uint32_t place : request) {
      chain.push_back(
          {SegmentId::derive(chain.back().id, digests[place]), trace.documents[place].tokens});
    }
  }

  prefixes.next_use.resize(prefixes.chains.size());
  absl::flat_hash_map<SegmentId, uint32_t> next;  // from the end backwards
  for (size_t i = prefixes.chains.size(); i-- > 0;) {
    for (const SegmentSpec& spec : prefixes.chains[i]) {
      const auto [it, is_new] = next.try_emplace(spec.id, Prefixes::kNever);
      prefixes.next_use[i].push_back(it->second);
      it->second = static_cast<uint32_t>(i);
      if (is_new && spec.id != root.id) {
        prefixes.working_set_blocks += (spec.tokens + block_tokens - 1) / block_tokens;
      }
    }
  }
  return prefixes;
}

}  // namespace ragcache::loadgen
