#include "services/retrieval/shard/shard.h"

#include <algorithm>

#include "common/strings.h"

namespace ragcache::retrieval {

absl::Status check_follows(const IndexState& index, const ChangeBatch& batch) {
  if (index.applied == batch.after) return absl::OkStatus();
  return absl::FailedPreconditionError(
      str_cat("the index is at change ", index.applied, ", these changes follow ", batch.after));
}

void advance(IndexState& index, const ChangeBatch& batch) {
  if (batch.after == 0) index.origin = batch.end;
  index.floor = std::max(index.floor, batch.end);
  index.applied = batch.upto;
}

absl::Status check_has(const IndexState& index, const ShardQuery& query) {
  if (index.has(query.min_sequence)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      str_cat("the index is at change ", index.applied, ", the search wants ", query.min_sequence,
              index.applied < index.floor ? " and the index is being filled" : ""));
}

}  // namespace ragcache::retrieval
