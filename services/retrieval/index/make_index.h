#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/retrieval/index/index_options.h"
#include "services/retrieval/index/vector_index.h"

namespace ragcache::retrieval {

// An empty index of the options. Those of the ivf kinds (and of kAuto) are exact without a trained
// state. INVALID_ARGUMENT: the trained state is damaged, or of other options.
// REQUIRES: check_index_options() is OK.
absl::StatusOr<std::unique_ptr<VectorIndex>> make_index(const IndexOptions& options,
                                                        const std::string& trained);

}  // namespace ragcache::retrieval
