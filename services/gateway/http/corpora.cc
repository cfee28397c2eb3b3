#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;

absl::StatusOr<std::string> corpus_name(const http::Request& request) {
  const std::string& name = *http::find_parameter(request.path_values, "name");
  RAG_RETURN_IF_ERROR(check_corpus("name", name));
  return name;
}

// What the wire carries; retrieval knows the bounds.
constexpr int64_t kWireMax = std::numeric_limits<uint32_t>::max();

absl::StatusOr<types::v1::CacheScope> parse_cache_scope(const Fields& fields) {
  RAG_ASSIGN_OR_RETURN(const auto scope, fields.text("cache_scope"));
  if (!scope) return types::v1::CACHE_SCOPE_UNSPECIFIED;
  if (*scope == "tenant") return types::v1::CACHE_SCOPE_TENANT;
  if (*scope == "shared") return types::v1::CACHE_SCOPE_SHARED;
  return invalid_field("cache_scope", "must be tenant or shared");
}

absl::StatusOr<pb::Corpus> parse_corpus(const nlohmann::json& body, std::string name) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  pb::Corpus corpus;
  corpus.set_name(std::move(name));
  RAG_ASSIGN_OR_RETURN(const auto scope, parse_cache_scope(fields));
  corpus.set_cache_scope(scope);
  RAG_ASSIGN_OR_RETURN(const auto tokens, fields.integer("chunk_tokens", 0, kWireMax));
  if (tokens) corpus.set_chunk_tokens(static_cast<uint32_t>(*tokens));
  RAG_ASSIGN_OR_RETURN(const auto overlap, fields.integer("chunk_overlap_tokens", 0, kWireMax));
  if (overlap) corpus.set_chunk_overlap_tokens(static_cast<uint32_t>(*overlap));
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  RAG_RETURN_IF_ERROR(check_corpus_settings(corpus));
  return corpus;
}

OutJson corpus_json(const pb::Corpus& corpus) {
  const bool shared = corpus.cache_scope() == types::v1::CACHE_SCOPE_SHARED;
  return {{"name", corpus.name()},
          {"object", "corpus"},
          {"cache_scope", shared ? "shared" : "tenant"},
          {"chunk_tokens", corpus.chunk_tokens()},
          {"chunk_overlap_tokens", corpus.chunk_overlap_tokens()},
          {"documents", corpus.documents()},
          {"pieces", corpus.pieces()},
          {"index_kind", corpus.index_kind()}};
}

// A PUT without a body wants the defaults.
awaitable<absl::StatusOr<nlohmann::json>> read_settings(Call& call) {
  const http::Headers& headers = call.request().headers;
  const bool has_body = headers.find("content-type") != nullptr ||
                        headers.find("transfer-encoding") != nullptr ||
                        headers.get("content-length").find_first_not_of('0') != std::string::npos;
  if (!has_body) co_return nlohmann::json::object();
  absl::StatusOr<nlohmann::json> body = co_await read_json(call);
  co_return body;
}

}  // namespace

awaitable<absl::Status> handle_list_corpora(Call& call) {
  absl::StatusOr<pb::ListCorporaResponse> listed = co_await backend::list_corpora(call);
  if (!listed.ok()) co_return listed.status();
  OutJson corpora = OutJson::array();
  for (const pb::Corpus& corpus : listed->corpora()) corpora.push_back(corpus_json(corpus));
  OutJson value = {{"object", "list"}, {"data", std::move(corpora)}};
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_get_corpus(Call& call) {
  absl::StatusOr<std::string> name = corpus_name(call.request());
  if (!name.ok()) co_return name.status();
  absl::StatusOr<pb::ListCorporaResponse> listed = co_await backend::list_corpora(call);
  if (!listed.ok()) co_return listed.status();
  const auto& corpora = listed->corpora();
  const auto found = std::find_if(corpora.begin(), corpora.end(),
                                  [&](const pb::Corpus& corpus) { return corpus.name() == *name; });
  if (found == corpora.end()) {
    co_return absl::NotFoundError(str_cat("corpus ", *name, " does not exist"));
  }
  OutJson value = corpus_json(*found);
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_put_corpus(Call& call) {
  absl::StatusOr<std::string> name = corpus_name(call.request());
  if (!name.ok()) co_return name.status();
  absl::StatusOr<nlohmann::json> body = co_await read_settings(call);
  if (!body.ok()) co_return body.status();
  absl::StatusOr<pb::Corpus> corpus = parse_corpus(*body, *std::move(name));
  if (!corpus.ok()) co_return corpus.status();
  pb::CreateCorpusRequest request;
  *request.mutable_corpus() = *std::move(corpus);
  absl::StatusOr<pb::CreateCorpusResponse> created =
      co_await backend::create_corpus(call, std::move(request));
  if (!created.ok()) co_return created.status();
  OutJson value = corpus_json(created->corpus());
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_delete_corpus(Call& call) {
  absl::StatusOr<std::string> name = corpus_name(call.request());
  if (!name.ok()) co_return name.status();
  pb::DeleteCorpusRequest request;
  request.set_name(*name);
  absl::StatusOr<pb::DeleteCorpusResponse> deleted =
      co_await backend::delete_corpus(call, std::move(request));
  if (!deleted.ok()) co_return deleted.status();
  OutJson value = {{"name", *name},
                   {"object", "corpus"},
                   {"deleted", true},
                   {"deleted_documents", deleted->deleted_documents()}};
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace ragcache::gateway
