#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ragcache::retrieval {

struct VectorHit {
  float score;  // inner product: the cosine, vectors being normalised
  int64_t id;

  bool operator==(const VectorHit&) const = default;
};

// Nearest vectors by inner product. Ids are the caller's, each used once.
//
// Any thread. Searches run beside each other; add() and remove() wait for those under way and hold
// up later ones for as long as they write. A search takes one thread, the caller's.
class VectorIndex {
 public:
  // Hits that score like the k-th are all returned, up to this many beyond k, so that the caller
  // can order ties by a key that the index does not know.
  static constexpr size_t kTiesMax = 1024;

  virtual ~VectorIndex() = default;

  // vectors: [ids.size(), dimension]. REQUIRES: no id is in the index.
  virtual absl::Status add(std::span<const int64_t> ids, std::span<const float> vectors) = 0;
  // How many of `ids` were there.
  virtual absl::StatusOr<size_t> remove(std::span<const int64_t> ids) = 0;
  // The k best (all, if there are fewer) and those that tie with the last of them; best first,
  // ties by id. query: [dimension]. REQUIRES: k > 0.
  virtual absl::StatusOr<std::vector<VectorHit>> search(std::span<const float> query,
                                                        size_t k) const = 0;

  virtual size_t size() const = 0;
  virtual std::vector<int64_t> ids() const = 0;  // ascending
  virtual std::string_view kind() const = 0;     // exact or ivf_flat: what searches use now
};

}  // namespace ragcache::retrieval
