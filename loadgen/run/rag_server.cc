#include "loadgen/run/rag_server.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/report/progress.h"
#include "services/ragcache/http_call.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

constexpr size_t kDocumentsOfARequest = 64;

// Bytes that are not UTF-8 would make dump() throw.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

http::ClientRequest post(const char* target, const char* content_type, std::string body,
                         const std::string& api_key) {
  http::ClientRequest request{
      .method = "POST", .target = target, .headers = {{"Content-Type", content_type}}};
  if (!api_key.empty()) request.headers.add("Authorization", "Bearer " + api_key);
  request.body = std::move(body);
  return request;
}

}  // namespace

absl::Status RagServer::ingest(std::span<const CorpusDocument> documents,
                               const std::function<absl::Status()>& interrupted) const {
  Progress progress("documents ingested", documents.size());
  for (size_t done = 0; done < documents.size();) {
    if (interrupted) RAG_RETURN_IF_ERROR(interrupted());
    const auto some =
        documents.subspan(done, std::min(kDocumentsOfARequest, documents.size() - done));
    std::string lines;
    for (const CorpusDocument& document : some) {
      lines += text_of({{"id", document.id}, {"title", document.title}, {"text", document.text}});
      lines += '\n';
    }
    RAG_RETURN_IF_ERROR(
        call_json(url_, post("/v1/documents", "application/x-ndjson", std::move(lines), api_key_))
            .status());
    done += some.size();
    progress.show(done);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CorpusDocument>> RagServer::search(const std::string& query,
                                                              uint32_t top_k) const {
  RAG_ASSIGN_OR_RETURN(
      const json found,
      call_json(url_, post("/v1/search", "application/json",
                           text_of({{"query", query}, {"top_k", top_k}}), api_key_)));
  std::vector<CorpusDocument> documents;
  for (const json& one : found.value("documents", json::array())) {
    if (!one.is_object() || !one.contains("id") || !one["id"].is_string()) {
      return absl::InternalError(str_cat("the answer to a search at ", url_, " has no ids"));
    }
    documents.push_back(
        {.id = one["id"], .title = one.value("title", ""), .text = one.value("text", "")});
  }
  return documents;
}

}  // namespace ragcache::loadgen
