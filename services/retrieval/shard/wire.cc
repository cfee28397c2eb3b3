#include "services/retrieval/shard/wire.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

absl::Status read_digest(const std::string& bytes, const char* field, Digest& digest) {
  if (bytes.size() != digest.size()) {
    return absl::InvalidArgumentError(
        str_cat(field, ": ", bytes.size(), " bytes, must be ", digest.size()));
  }
  std::ranges::copy(bytes, digest.begin());
  return absl::OkStatus();
}

std::string to_bytes(const Digest& digest) { return {digest.begin(), digest.end()}; }

}  // namespace

IndexKey to_key(const v1::IndexKey& message) { return {message.corpus(), message.generation()}; }

void to_message(const IndexKey& key, v1::IndexKey& message) {
  message.set_corpus(key.corpus);
  message.set_generation(key.generation);
}

IndexState to_state(const v1::IndexState& message) {
  return {.key = to_key(message.key()),
          .applied = message.applied(),
          .floor = message.floor(),
          .origin = message.origin(),
          .vectors = message.vectors(),
          .wasteful = message.wasteful()};
}

void to_message(const IndexState& state, v1::IndexState& message) {
  to_message(state.key, *message.mutable_key());
  message.set_applied(state.applied);
  message.set_floor(state.floor);
  message.set_origin(state.origin);
  message.set_vectors(state.vectors);
  message.set_wasteful(state.wasteful);
}

absl::StatusOr<IndexSpec> to_spec(const v1::IndexSpec& message) {
  IndexSpec spec;
  IndexOptions& options = spec.options;
  RAG_ASSIGN_OR_RETURN(options.kind, index_kind_from_name(message.kind()));
  options.dimension = message.dimension();
  options.ivf_lists = message.ivf_lists();
  options.ivf_probes = message.ivf_probes();
  options.pq_subvectors = message.pq_subvectors();
  options.pq_bits = message.pq_bits();
  options.refine_factor = message.refine_factor();
  options.hnsw_m = message.hnsw_m();
  options.ef_construction = message.ef_construction();
  options.ef_search = message.ef_search();
  spec.trained = message.trained();
  RAG_RETURN_IF_ERROR(
      read_digest(message.embedding_model(), "embedding_model", spec.embedding_model));
  RAG_RETURN_IF_ERROR(check_index_options(options));
  return spec;
}

void to_message(const IndexSpec& spec, v1::IndexSpec& message) {
  const IndexOptions& options = spec.options;
  message.set_kind(std::string(index_kind_name(options.kind)));
  message.set_dimension(options.dimension);
  message.set_ivf_lists(options.ivf_lists);
  message.set_ivf_probes(options.ivf_probes);
  message.set_pq_subvectors(options.pq_subvectors);
  message.set_pq_bits(options.pq_bits);
  message.set_refine_factor(options.refine_factor);
  message.set_hnsw_m(options.hnsw_m);
  message.set_ef_construction(options.ef_construction);
  message.set_ef_search(options.ef_search);
  message.set_trained(spec.trained);
  message.set_embedding_model(to_bytes(spec.embedding_model));
}

absl::StatusOr<ShardBinding> to_binding(const v1::BindShardRequest& message) {
  ShardBinding binding{.shard = message.shard(), .shards = message.shards()};
  RAG_RETURN_IF_ERROR(read_digest(message.store_id(), "store_id", binding.store_id));
  if (binding.shard >= binding.shards) {
    return absl::InvalidArgumentError(
        str_cat("shard: ", binding.shard, ", must be less than shards=", binding.shards));
  }
  return binding;
}

void to_message(const ShardBinding& binding, v1::BindShardRequest& message) {
  message.set_store_id(to_bytes(binding.store_id));
  message.set_shard(binding.shard);
  message.set_shards(binding.shards);
}

ChangeBatch to_batch(const v1::ApplyChangesRequest& message) {
  return {.key = to_key(message.key()),
          .after = message.after(),
          .upto = message.upto(),
          .end = message.end(),
          .added = {message.added().begin(), message.added().end()},
          .vectors = {message.vectors().begin(), message.vectors().end()},
          .removed = {message.removed().begin(), message.removed().end()}};
}

void to_message(const ChangeBatch& batch, v1::ApplyChangesRequest& message) {
  to_message(batch.key, *message.mutable_key());
  message.set_after(batch.after);
  message.set_upto(batch.upto);
  message.set_end(batch.end);
  message.mutable_added()->Add(batch.added.begin(), batch.added.end());
  message.mutable_vectors()->Add(batch.vectors.begin(), batch.vectors.end());
  message.mutable_removed()->Add(batch.removed.begin(), batch.removed.end());
}

absl::StatusOr<ShardQuery> to_query(const v1::SearchIndexRequest& message) {
  if (message.k() == 0) return absl::InvalidArgumentError("k: must be at least 1");
  ShardQuery query{.key = to_key(message.key()),
                   .min_sequence = message.min_sequence(),
                   .query = {message.query().begin(), message.query().end()},
                   .k = message.k()};
  if (message.has_allowed()) {
    query.allowed = std::make_shared<IdSet>(
        message.allowed().base(),
        std::vector<uint64_t>(message.allowed().words().begin(), message.allowed().words().end()));
  }
  return query;
}

void to_message(const ShardQuery& query, v1::SearchIndexRequest& message) {
  to_message(query.key, *message.mutable_key());
  message.set_min_sequence(query.min_sequence);
  message.mutable_query()->Add(query.query.begin(), query.query.end());
  message.set_k(static_cast<uint32_t>(query.k));
  if (query.allowed != nullptr) {
    message.mutable_allowed()->set_base(query.allowed->base());
    message.mutable_allowed()->mutable_words()->Add(query.allowed->words().begin(),
                                                    query.allowed->words().end());
  }
}

absl::StatusOr<ShardHits> to_hits(const v1::SearchIndexResponse& message) {
  if (message.scores_size() != message.ids_size() ||
      message.candidate_scores_size() != message.ids_size()) {
    return absl::InternalError(str_cat("scores: ", message.scores_size(), " and ",
                                       message.candidate_scores_size(), " of ", message.ids_size(),
                                       " ids"));
  }
  ShardHits hits{.sequence = message.sequence()};
  hits.candidates.limit = message.limit();
  for (int i = 0; i < message.ids_size(); ++i) {
    hits.candidates.hits.push_back(
        {message.scores(i), message.ids(i), message.candidate_scores(i)});
  }
  return hits;
}

void to_message(const ShardHits& hits, v1::SearchIndexResponse& message) {
  for (const VectorHit& hit : hits.candidates.hits) {
    message.add_ids(hit.id);
    message.add_scores(hit.score);
    message.add_candidate_scores(hit.candidate_score);
  }
  message.set_limit(hits.candidates.limit);
  message.set_sequence(hits.sequence);
}

}  // namespace ragcache::retrieval
