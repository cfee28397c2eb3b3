#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ragcache/retrieval/v1/shard.pb.h"
#include "services/retrieval/shard/shard.h"

// What routers and shards say to each other, as messages carry it. INVALID_ARGUMENT names the field
// that is not as it must be.
namespace ragcache::retrieval {

IndexKey to_key(const v1::IndexKey& message);
void to_message(const IndexKey& key, v1::IndexKey& message);

IndexState to_state(const v1::IndexState& message);
void to_message(const IndexState& state, v1::IndexState& message);

// The options pass check_index_options().
absl::StatusOr<IndexSpec> to_spec(const v1::IndexSpec& message);
void to_message(const IndexSpec& spec, v1::IndexSpec& message);

absl::StatusOr<ShardBinding> to_binding(const v1::BindShardRequest& message);
void to_message(const ShardBinding& binding, v1::BindShardRequest& message);

ChangeBatch to_batch(const v1::ApplyChangesRequest& message);
void to_message(const ChangeBatch& batch, v1::ApplyChangesRequest& message);

absl::StatusOr<ShardQuery> to_query(const v1::SearchIndexRequest& message);
void to_message(const ShardQuery& query, v1::SearchIndexRequest& message);

absl::StatusOr<ShardHits> to_hits(const v1::SearchIndexResponse& message);
void to_message(const ShardHits& hits, v1::SearchIndexResponse& message);

}  // namespace ragcache::retrieval
