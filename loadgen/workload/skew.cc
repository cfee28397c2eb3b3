#include "loadgen/workload/skew.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "common/strings.h"
#include "loadgen/workload/sample.h"

namespace ragcache::loadgen {
namespace {

using Requests = std::span<const std::vector<uint32_t>>;

double share(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

double top_share_of(Requests requests, size_t documents) {
  std::vector<uint64_t> counts(documents);
  uint64_t all = 0;
  for (const auto& request : requests) {
    all += request.size();
    for (const uint32_t place : request) ++counts[place];
  }
  std::sort(counts.begin(), counts.end(), std::greater<>());
  counts.resize((documents * Skew::kTopPercent + 99) / 100);
  uint64_t top = 0;
  for (const uint64_t count : counts) top += count;
  return share(top, all);
}

SkewFigures figures_of(Requests requests, std::span<const uint32_t> document_tokens,
                       uint64_t warmup_requests) {
  // Nodes of a prefix tree, numbered from 1, by their parent's number and their document.
  absl::flat_hash_map<uint64_t, uint32_t> nodes;
  uint64_t all = 0, cached = 0, warm_all = 0, warm_cached = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    uint32_t node = 0;
    for (const uint32_t place : requests[i]) {
      const auto next = static_cast<uint32_t>(nodes.size() + 1);
      const auto [it, is_new] = nodes.try_emplace(uint64_t{node} << 32 | place, next);
      node = it->second;
      const uint32_t tokens = document_tokens[place];
      all += tokens;
      if (!is_new) cached += tokens;
      if (i < warmup_requests) continue;
      warm_all += tokens;
      if (!is_new) warm_cached += tokens;
    }
  }
  return {top_share_of(requests, document_tokens.size()), share(cached, all),
          share(warm_cached, warm_all)};
}

// All of them if `count` is more: recorded requests may have a document twice.
std::vector<uint32_t> draw_distinct(Random& random, size_t count, size_t documents) {
  std::vector<uint32_t> drawn;
  while (drawn.size() < std::min(count, documents)) {
    const auto place = static_cast<uint32_t>(random() % documents);
    if (std::ranges::find(drawn, place) == drawn.end()) drawn.push_back(place);
  }
  return drawn;
}

std::vector<uint32_t> tokens_of(const Workload& workload) {
  std::vector<uint32_t> tokens;
  for (const CorpusDocument& document : workload.documents) tokens.push_back(document.tokens);
  return tokens;
}

}  // namespace

Skew skew_of(Requests requests, std::span<const uint32_t> document_tokens, uint64_t warmup_requests,
             uint64_t seed) {
  for (const auto& request : requests) {
    for (const uint32_t place : request) RAG_CHECK(place < document_tokens.size());
  }
  Skew skew{.requests = figures_of(requests, document_tokens, warmup_requests)};
  Random random(seed);
  for (uint32_t i = 0; i < Skew::kUniformDraws; ++i) {
    std::vector<std::vector<uint32_t>> drawn;
    for (const auto& request : requests) {
      drawn.push_back(draw_distinct(random, request.size(), document_tokens.size()));
    }
    const SkewFigures figures = figures_of(drawn, document_tokens, warmup_requests);
    skew.uniform.top_share += figures.top_share / Skew::kUniformDraws;
    skew.uniform.cached_share += figures.cached_share / Skew::kUniformDraws;
    skew.uniform.warm_cached_share += figures.warm_cached_share / Skew::kUniformDraws;
  }
  return skew;
}

absl::StatusOr<Skew> skew_of(const Workload& workload,
                             std::span<const std::vector<std::string>> found,
                             uint64_t warmup_requests, uint64_t seed) {
  absl::flat_hash_map<std::string, uint32_t> place_by_id;
  for (size_t i = 0; i < workload.documents.size(); ++i) {
    place_by_id[workload.documents[i].id] = static_cast<uint32_t>(i);
  }
  std::vector<std::vector<uint32_t>> requests;
  for (const auto& ids : found) {
    std::vector<uint32_t>& places = requests.emplace_back();
    for (const std::string& id : ids) {
      const auto place = place_by_id.find(id);
      if (place == place_by_id.end()) {
        return absl::InvalidArgumentError(
            str_cat("documents: ", id, " is not one of ", workload.name));
      }
      places.push_back(place->second);
    }
  }
  return skew_of(requests, tokens_of(workload), warmup_requests, seed);
}

Skew skew_of(const Workload& workload, uint64_t warmup_requests, uint64_t seed) {
  std::vector<std::vector<uint32_t>> requests;
  for (const WorkloadRequest& request : workload.requests) requests.push_back(request.documents);
  return skew_of(requests, tokens_of(workload), warmup_requests, seed);
}

}  // namespace ragcache::loadgen
