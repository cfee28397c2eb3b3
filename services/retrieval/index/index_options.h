#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ragcache::retrieval {

inline constexpr std::string_view kExactKind = "exact";
inline constexpr std::string_view kIvfFlatKind = "ivf_flat";
inline constexpr std::string_view kIvfPqKind = "ivf_pq";
inline constexpr std::string_view kIvfSq8Kind = "ivf_sq8";
inline constexpr std::string_view kHnswKind = "hnsw";

// How vectors are searched. The ivf kinds scan the clusters nearest to the question and begin as
// an exact scan, until there are vectors enough to train them.
struct IndexOptions {
  enum class Kind {
    kAuto,     // exact while that is fast enough, then kIvfFlat
    kExact,    // all vectors
    kIvfFlat,  // whole vectors
    kIvfPq,    // product-quantised residuals; the best are scored anew by half-precision vectors
    kIvfSq8,   // one byte a component, over its range in the sample
    kHnsw,     // a graph of near neighbours
  };

  Kind kind = Kind::kAuto;
  uint32_t dimension = 0;
  uint32_t ivf_lists = 0;      // 0: by the number of vectors
  uint32_t ivf_probes = 0;     // 0: one list in sixteen, eight at least
  uint32_t pq_subvectors = 0;  // 0: one for eight components
  uint32_t pq_bits = 8;        // of a subvector's code
  uint32_t refine_factor = 4;  // ivf_pq scores so many times k anew; 0: none, and keeps no vectors
  uint32_t hnsw_m = 32;        // neighbours of a vector, twice as many in the lowest layer
  uint32_t ef_construction = 100;
  uint32_t ef_search = 64;

  bool operator==(const IndexOptions&) const = default;
};

// auto, or one of the names above. INVALID_ARGUMENT: another name.
absl::StatusOr<IndexOptions::Kind> index_kind_from_name(std::string_view name);
std::string_view index_kind_name(IndexOptions::Kind kind);

// INVALID_ARGUMENT names the option that is out of bounds.
absl::Status check_index_options(const IndexOptions& options);

// pq_subvectors, or the number that 0 stands for.
uint32_t pq_subvectors(const IndexOptions& options);
// ivf_probes, or the number that 0 stands for.
uint32_t ivf_probes(const IndexOptions& options, uint32_t lists);

}  // namespace ragcache::retrieval
