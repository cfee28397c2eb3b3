#include "services/retrieval/index/make_index.h"

#include <utility>

#include "common/check.h"
#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/hnsw_index.h"
#include "services/retrieval/index/ivf_index.h"
#include "services/retrieval/index/trained_state.h"

namespace ragcache::retrieval {

absl::StatusOr<std::unique_ptr<VectorIndex>> make_index(const IndexOptions& options,
                                                        const std::string& trained) {
  RAG_CHECK(check_index_options(options).ok());
  if (!trained.empty()) {
    absl::StatusOr<TrainedState> state = TrainedState::parse(trained);
    absl::Status status = state.status();
    if (status.ok()) status = check_trained(state->info, options);
    if (!status.ok()) return absl::InvalidArgumentError(status.message());
    const uint32_t probes = ivf_probes(options, state->info.lists);
    return std::make_unique<IvfIndex>(*std::move(state), probes, options.refine_factor);
  }
  if (options.kind == IndexOptions::Kind::kHnsw) return std::make_unique<HnswIndex>(options);
  return std::make_unique<FlatIndex>(options.dimension);
}

}  // namespace ragcache::retrieval
