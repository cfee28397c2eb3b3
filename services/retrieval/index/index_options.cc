#include "services/retrieval/index/index_options.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

constexpr uint32_t kDimensionMax = 1 << 16;
constexpr uint32_t kListsMax = 1 << 20;
constexpr uint32_t kProbesMin = 8;
constexpr uint32_t kListsPerProbe = 16;
constexpr uint32_t kPqBitsMin = 4;
constexpr uint32_t kPqBitsMax = 8;
constexpr uint32_t kComponentsPerSubvector = 8;
constexpr uint32_t kRefineFactorMax = 1000;
constexpr uint32_t kHnswMMin = 2;
constexpr uint32_t kHnswMMax = 256;
constexpr uint32_t kEfMax = 1 << 16;

absl::Status check_range(const char* name, uint32_t value, uint32_t min, uint32_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(str_cat(name, "=", value, " is not in ", min, "..", max));
}

}  // namespace

absl::StatusOr<IndexOptions::Kind> index_kind_from_name(std::string_view name) {
  using Kind = IndexOptions::Kind;
  if (name == "auto") return Kind::kAuto;
  if (name == kExactKind) return Kind::kExact;
  if (name == kIvfFlatKind) return Kind::kIvfFlat;
  if (name == kIvfPqKind) return Kind::kIvfPq;
  if (name == kIvfSq8Kind) return Kind::kIvfSq8;
  if (name == kHnswKind) return Kind::kHnsw;
  return absl::InvalidArgumentError(
      str_cat("index=", name, " is none of auto, exact, ivf_flat, ivf_pq, ivf_sq8, hnsw"));
}

std::string_view index_kind_name(IndexOptions::Kind kind) {
  using Kind = IndexOptions::Kind;
  switch (kind) {
    case Kind::kAuto:
      return "auto";
    case Kind::kExact:
      return kExactKind;
    case Kind::kIvfFlat:
      return kIvfFlatKind;
    case Kind::kIvfPq:
      return kIvfPqKind;
    case Kind::kIvfSq8:
      return kIvfSq8Kind;
    case Kind::kHnsw:
      return kHnswKind;
  }
  RAG_CHECK(false);
}

absl::Status check_index_options(const IndexOptions& options) {
  RAG_RETURN_IF_ERROR(check_range("dimension", options.dimension, 1, kDimensionMax));
  RAG_RETURN_IF_ERROR(check_range("ivf_lists", options.ivf_lists, 0, kListsMax));
  RAG_RETURN_IF_ERROR(check_range("ivf_probes", options.ivf_probes, 0, kListsMax));
  RAG_RETURN_IF_ERROR(check_range("pq_subvectors", options.pq_subvectors, 0, options.dimension));
  if (options.pq_subvectors > 0 && options.dimension % options.pq_subvectors != 0) {
    return absl::InvalidArgumentError(str_cat("pq_subvectors=", options.pq_subvectors,
                                              " does not divide the dimension ",
                                              options.dimension));
  }
  RAG_RETURN_IF_ERROR(check_range("pq_bits", options.pq_bits, kPqBitsMin, kPqBitsMax));
  RAG_RETURN_IF_ERROR(check_range("refine_factor", options.refine_factor, 0, kRefineFactorMax));
  RAG_RETURN_IF_ERROR(check_range("hnsw_m", options.hnsw_m, kHnswMMin, kHnswMMax));
  RAG_RETURN_IF_ERROR(check_range("ef_construction", options.ef_construction, 1, kEfMax));
  return check_range("ef_search", options.ef_search, 1, kEfMax);
}

uint32_t pq_subvectors(const IndexOptions& options) {
  if (options.pq_subvectors > 0) return options.pq_subvectors;
  uint32_t subvectors = std::max(1u, options.dimension / kComponentsPerSubvector);
  while (options.dimension % subvectors != 0) --subvectors;
  return subvectors;
}

uint32_t ivf_probes(const IndexOptions& options, uint32_t lists) {
  const uint32_t probes =
      options.ivf_probes > 0 ? options.ivf_probes : std::max(kProbesMin, lists / kListsPerProbe);
  return std::min(probes, lists);
}

}  // namespace ragcache::retrieval
