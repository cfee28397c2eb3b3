#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {

// How unevenly documents are wanted, and what a cache of their prefixes could make of it.
struct SkewFigures {
  double top_share = 0;  // of all documents of all requests, those among the most wanted 3 %
  // Of the documents' tokens, those that a cache without bounds would hold when they are wanted:
  // behind the same documents as before. The second: of the requests after the warm-up alone.
  double cached_share = 0;
  double warm_cached_share = 0;

  // How many times as many tokens are computed without a cache: what reuse can gain at most.
  double ceiling() const { return 1 / (1 - cached_share); }
  double warm_ceiling() const { return 1 / (1 - warm_cached_share); }
};

struct Skew {
  static constexpr uint32_t kTopPercent = 3;
  static constexpr uint32_t kUniformDraws = 20;

  SkewFigures requests;
  SkewFigures uniform;  // the mean of so many draws, of as many documents for each request, evenly
};

// `requests`: places of each one's documents in `document_tokens`, in prompt order.
// REQUIRES: no place is beyond the end.
Skew skew_of(std::span<const std::vector<uint32_t>> requests,
             std::span<const uint32_t> document_tokens, uint64_t warmup_requests, uint64_t seed);

// The same of a workload's own documents, or, for each request, of those that retrieval found, by
// id. INVALID_ARGUMENT if one is not the workload's.
absl::StatusOr<Skew> skew_of(const Workload& workload,
                             std::span<const std::vector<std::string>> found,
                             uint64_t warmup_requests, uint64_t seed);
Skew skew_of(const Workload& workload, uint64_t warmup_requests, uint64_t seed);

}  // namespace ragcache::loadgen
