#include <charconv>
#include <string>
#include <utility>

#include "common/hash.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/http/metadata.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;

absl::StatusOr<uint32_t> parse_limit(const http::Request& request) {
  const std::string* text = http::find_parameter(request.query, "limit");
  if (text == nullptr) return kDefaultPage;
  uint32_t limit = 0;
  const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (fault != std::errc() || end != text->data() + text->size() || limit < 1 || limit > kMaxPage) {
    return invalid_field("limit", str_cat("must be 1 to ", kMaxPage));
  }
  return limit;
}

absl::StatusOr<pb::ListDocumentsRequest> parse_list(const http::Request& http_request) {
  pb::ListDocumentsRequest request;
  RAG_ASSIGN_OR_RETURN(const uint32_t limit, parse_limit(http_request));
  request.set_limit(limit);
  if (const std::string* after = http::find_parameter(http_request.query, "after")) {
    RAG_RETURN_IF_ERROR(check_document_id("after", *after));
    request.set_after_id(*after);
  }
  RAG_ASSIGN_OR_RETURN(*request.mutable_corpus(), corpus_parameter(http_request));
  return request;
}

// Of GetDocuments or DeleteDocuments: the one id of the path.
template <typename Request>
absl::StatusOr<Request> parse_one(const http::Request& http_request) {
  Request request;
  const std::string& id = *http::find_parameter(http_request.path_values, "id");
  RAG_RETURN_IF_ERROR(check_stored_id("id", id));
  request.add_ids(id);
  RAG_ASSIGN_OR_RETURN(*request.mutable_corpus(), corpus_parameter(http_request));
  return request;
}

absl::StatusOr<pb::DeleteDocumentsRequest> parse_delete(const nlohmann::json& body,
                                                        const http::Request& http_request) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  pb::DeleteDocumentsRequest request;
  const nlohmann::json* ids = fields.find("ids");
  if (ids == nullptr) return missing_field("ids");
  if (!ids->is_array()) return invalid_field("ids", "must be an array of ids", "invalid_type");
  for (size_t i = 0; i < ids->size(); ++i) {
    const nlohmann::json& id = (*ids)[i];
    if (!id.is_string()) {
      return invalid_field(str_cat("ids[", i, "]"), str_cat("must be a string, not ", kind_of(id)),
                           "invalid_type");
    }
    request.add_ids(id.get_ref<const std::string&>());
  }
  RAG_RETURN_IF_ERROR(check_stored_ids("ids", request.ids()));
  RAG_ASSIGN_OR_RETURN(*request.mutable_corpus(), corpus_parameter(http_request));
  RAG_ASSIGN_OR_RETURN(auto corpus, fields.text("corpus", 1));
  if (corpus) {
    RAG_RETURN_IF_ERROR(check_corpus("corpus", *corpus));
    request.set_corpus(*std::move(corpus));
  }
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  return request;
}

OutJson document_json(const types::v1::Document& document) {
  const std::string& digest = document.content_digest();
  OutJson value = {
      {"id", document.id()},
      {"object", "document"},
      {"title", document.title()},
      {"text", document.text()},
      {"metadata", metadata_json(document.metadata())},
      {"tokens", document.segment_tokens_size()},
      {"content_digest", to_hex({reinterpret_cast<const uint8_t*>(digest.data()), digest.size()})}};
  if (!document.source_id().empty()) value["source_id"] = document.source_id();
  return value;
}

OutJson list_json(const pb::ListDocumentsResponse& page, uint32_t limit) {
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : page.documents()) {
    documents.push_back({{"id", document.id()}, {"title", document.title()}});
  }
  // A full page may have been the last: the next one is empty then.
  const bool has_more = documents.size() == limit;
  OutJson last = nullptr;
  if (!documents.empty()) last = documents.back()["id"];
  return {{"object", "list"},
          {"data", std::move(documents)},
          {"last_id", std::move(last)},
          {"has_more", has_more},
          {"total", page.total()}};
}

// A long document, which is kept in pieces that overlap.
OutJson pieces_json(const pb::GetDocumentsResponse& found) {
  const types::v1::Document& first = found.documents(0);
  OutJson pieces = OutJson::array();
  for (const types::v1::Document& piece : found.documents()) pieces.push_back(document_json(piece));
  return {{"id", first.source_id()}, {"title", first.title()}, {"pieces", std::move(pieces)}};
}

}  // namespace

awaitable<absl::Status> handle_list_documents(Call& call) {
  absl::StatusOr<pb::ListDocumentsRequest> request = parse_list(call.request());
  if (!request.ok()) co_return request.status();
  const uint32_t limit = request->limit();
  absl::StatusOr<pb::ListDocumentsResponse> page =
      co_await backend::list_documents(call, *std::move(request));
  if (!page.ok()) co_return page.status();
  OutJson value = list_json(*page, limit);
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_get_document(Call& call) {
  absl::StatusOr<pb::GetDocumentsRequest> request =
      parse_one<pb::GetDocumentsRequest>(call.request());
  if (!request.ok()) co_return request.status();
  absl::StatusOr<pb::GetDocumentsResponse> found =
      co_await backend::get_documents(call, *std::move(request));
  if (!found.ok()) co_return found.status();
  if (found->documents().empty()) co_return absl::InternalError("retrieval gave no document");
  OutJson value =
      found->documents_size() == 1 ? document_json(found->documents(0)) : pieces_json(*found);
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_delete_document(Call& call) {
  absl::StatusOr<pb::DeleteDocumentsRequest> request =
      parse_one<pb::DeleteDocumentsRequest>(call.request());
  if (!request.ok()) co_return request.status();
  const std::string id = request->ids(0);
  absl::StatusOr<pb::DeleteDocumentsResponse> deleted =
      co_await backend::delete_documents(call, *std::move(request));
  if (!deleted.ok()) co_return deleted.status();
  if (deleted->deleted() == 0) {
    co_return absl::NotFoundError(str_cat("document ", id, " does not exist"));
  }
  OutJson value = {{"id", id}, {"object", "document"}, {"deleted", true}};
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_delete_documents(Call& call) {
  absl::StatusOr<nlohmann::json> body = co_await read_json(call);
  if (!body.ok()) co_return body.status();
  absl::StatusOr<pb::DeleteDocumentsRequest> request = parse_delete(*body, call.request());
  if (!request.ok()) co_return request.status();
  absl::StatusOr<pb::DeleteDocumentsResponse> deleted =
      co_await backend::delete_documents(call, *std::move(request));
  if (!deleted.ok()) co_return deleted.status();
  OutJson value = {{"object", "list"}, {"deleted", deleted->deleted()}};
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace ragcache::gateway
