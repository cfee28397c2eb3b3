#include "services/gateway/documents.h"

#include <charconv>
#include <string>
#include <utility>

#include "common/hash.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/document_parser.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/upstream.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;
using SearchStream = ReadStream<pb::SearchRequest, pb::SearchResponse>;

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kMaxPage = 1000;
constexpr size_t kMaxQueryBytes = 32 << 10;

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

absl::StatusOr<std::string> document_id(const http::Request& request) {
  const std::string& id = *http::find_parameter(request.path_values, "id");
  RAG_RETURN_IF_ERROR(check_document_id("id", id));
  return id;
}

absl::StatusOr<pb::SearchRequest> parse_search(std::string_view body, const Config& config) {
  RAG_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(body));
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(value, "", "body"));
  RAG_ASSIGN_OR_RETURN(auto query, fields.text("query", 1, kMaxQueryBytes));
  if (!query) return invalid_field("query", "is required", "missing_required_parameter");
  RAG_ASSIGN_OR_RETURN(const auto top_k, fields.integer("top_k", 1, config.max_top_k));
  RAG_RETURN_IF_ERROR(fields.refuse_others({"query", "top_k"}));
  pb::SearchRequest request;
  request.set_query(*std::move(query));
  request.set_top_k(static_cast<uint32_t>(top_k.value_or(config.default_top_k)));
  return request;
}

OutJson search_json(const pb::SearchResponse& found) {
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : found.documents()) {
    documents.push_back({{"id", document.id()},
                         {"title", document.title()},
                         {"text", document.text()},
                         {"score", printed_float(document.score())},
                         {"rank", documents.size() + 1}});
  }
  return {{"documents", std::move(documents)},
          {"timings",
           {{"embed_ms", static_cast<double>(found.embed_us()) / 1000},
            {"search_ms", static_cast<double>(found.search_us()) / 1000}}}};
}

}  // namespace

awaitable<void> handle_list(Services& services, http::Exchange& exchange) {
  const absl::StatusOr<uint32_t> limit = parse_limit(exchange.request());
  pb::ListDocumentsRequest request;
  absl::Status status = limit.status();
  if (const std::string* after = http::find_parameter(exchange.request().query, "after")) {
    if (status.ok()) status = check_document_id("after", *after);
    request.set_after_id(*after);
  }
  if (!status.ok()) {
    co_await respond_error(exchange, std::move(status));
    co_return;
  }
  request.set_limit(*limit);
  auto start = [&services](auto* context, auto* wanted, auto* response, auto done) {
    services.retrieval->async()->ListDocuments(context, wanted, response, std::move(done));
  };
  absl::StatusOr<pb::ListDocumentsResponse> page = co_await call_unary<pb::ListDocumentsResponse>(
      exchange, services.config.upstream_timeout_ms, std::move(request), start);
  if (!page.ok()) {
    co_await respond_error(exchange, page.status());
    co_return;
  }
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : page->documents()) {
    documents.push_back({{"id", document.id()}, {"title", document.title()}});
  }
  // A full page may have been the last: the next one is empty then.
  const bool has_more = documents.size() == *limit;
  OutJson last = nullptr;
  if (!documents.empty()) last = documents.back()["id"];
  OutJson value = {{"object", "list"},
                   {"data", std::move(documents)},
                   {"last_id", std::move(last)},
                   {"has_more", has_more},
                   {"total", page->total()}};
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_get(Services& services, http::Exchange& exchange) {
  absl::StatusOr<std::string> id = document_id(exchange.request());
  if (!id.ok()) {
    co_await respond_error(exchange, id.status());
    co_return;
  }
  pb::GetDocumentsRequest request;
  request.add_ids(*id);
  auto start = [&services](auto* context, auto* wanted, auto* response, auto done) {
    services.retrieval->async()->GetDocuments(context, wanted, response, std::move(done));
  };
  absl::StatusOr<pb::GetDocumentsResponse> found = co_await call_unary<pb::GetDocumentsResponse>(
      exchange, services.config.upstream_timeout_ms, std::move(request), start);
  if (!found.ok() || found->documents_size() != 1) {
    absl::Status status =
        found.ok() ? absl::InternalError("retrieval gave no document") : found.status();
    co_await respond_error(exchange, std::move(status));
    co_return;
  }
  const types::v1::Document& document = found->documents(0);
  const std::string& digest = document.content_digest();
  OutJson value = {
      {"id", document.id()},
      {"object", "document"},
      {"title", document.title()},
      {"text", document.text()},
      {"tokens", document.segment_tokens_size()},
      {"content_digest", to_hex({reinterpret_cast<const uint8_t*>(digest.data()), digest.size()})}};
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_delete(Services& services, http::Exchange& exchange) {
  absl::StatusOr<std::string> id = document_id(exchange.request());
  if (!id.ok()) {
    co_await respond_error(exchange, id.status());
    co_return;
  }
  pb::DeleteDocumentsRequest request;
  request.add_ids(*id);
  auto start = [&services](auto* context, auto* wanted, auto* response, auto done) {
    services.retrieval->async()->DeleteDocuments(context, wanted, response, std::move(done));
  };
  absl::StatusOr<pb::DeleteDocumentsResponse> deleted =
      co_await call_unary<pb::DeleteDocumentsResponse>(
          exchange, services.config.upstream_timeout_ms, std::move(request), start);
  absl::Status status = deleted.status();
  if (status.ok() && deleted->deleted() == 0) {
    status = absl::NotFoundError(str_cat("document ", *id, " does not exist"));
  }
  if (!status.ok()) {
    co_await respond_error(exchange, std::move(status));
    co_return;
  }
  OutJson value = {{"id", *id}, {"object", "document"}, {"deleted", true}};
  co_await respond_json(exchange, std::move(value));
}

awaitable<void> handle_search(Services& services, http::Exchange& exchange) {
  absl::StatusOr<std::string> body = co_await read_json_body(exchange);
  if (!body.ok()) {
    co_await respond_error(exchange, body.status());
    co_return;
  }
  absl::StatusOr<pb::SearchRequest> request = parse_search(*body, services.config);
  if (!request.ok()) {
    co_await respond_error(exchange, request.status());
    co_return;
  }
  SearchStream search(exchange, services.config.upstream_timeout_ms, *std::move(request),
                      [&services](auto* context, auto* wanted, auto* reactor) {
                        services.retrieval->async()->Search(context, wanted, reactor);
                      });
  pb::SearchResponse stage;
  bool more = co_await search.next(stage);
  while (more && !stage.final()) more = co_await search.next(stage);
  if (!more) {
    absl::Status status = search.status();
    if (status.ok()) status = absl::InternalError("retrieval ended a search without its result");
    co_await respond_error(exchange, std::move(status));
    co_return;
  }
  OutJson value = search_json(stage);
  co_await respond_json(exchange, std::move(value));
}

}  // namespace ragcache::gateway
