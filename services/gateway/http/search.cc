#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/http/metadata.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/filter.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;
using nlohmann::json;

// Texts of one call: what an embedder takes in a second or two.
constexpr int kEmbedBatch = 64;

absl::Status parse_embedding(const json& value, pb::SearchRequest& request) {
  if (!value.is_array() || value.empty()) {
    return invalid_field("embedding", "must be an array of numbers", "invalid_type");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_number()) {
      return invalid_field(str_cat("embedding[", i, "]"),
                           str_cat("must be a number, not ", kind_of(value[i])), "invalid_type");
    }
    request.add_embedding(value[i].get<float>());
  }
  return absl::OkStatus();
}

absl::StatusOr<pb::SearchRequest> parse_search(const json& body, const Config& config) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  pb::SearchRequest request;
  RAG_ASSIGN_OR_RETURN(auto query, fields.text("query", 1, kMaxQueryBytes));
  if (query) request.set_query(*std::move(query));
  if (const json* embedding = fields.find("embedding")) {
    RAG_RETURN_IF_ERROR(parse_embedding(*embedding, request));
  }
  RAG_ASSIGN_OR_RETURN(const auto top_k, fields.integer("top_k", 1, config.max_top_k));
  request.set_top_k(static_cast<uint32_t>(top_k.value_or(0)));
  RAG_ASSIGN_OR_RETURN(auto corpus, fields.text("corpus", 1));
  request.set_corpus(corpus.value_or(""));
  if (const json* filter = fields.find("filter")) {
    RAG_RETURN_IF_ERROR(parse_filter("filter", *filter, *request.mutable_filter()));
  }
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  RAG_RETURN_IF_ERROR(check_search(request, config.default_top_k, config.max_top_k));
  return request;
}

OutJson search_json(const pb::SearchResponse& found) {
  OutJson documents = OutJson::array();
  for (const types::v1::Document& document : found.documents()) {
    OutJson one = {{"id", document.id()},
                   {"title", document.title()},
                   {"text", document.text()},
                   {"metadata", metadata_json(document.metadata())},
                   {"score", printed_float(document.score())},
                   {"rank", documents.size() + 1}};
    if (!document.source_id().empty()) one["source_id"] = document.source_id();
    documents.push_back(std::move(one));
  }
  return {{"documents", std::move(documents)},
          {"timings",
           {{"embed_ms", to_ms(found.embed_us())}, {"search_ms", to_ms(found.search_us())}}}};
}

struct EmbeddingsBody {
  std::string model;
  pb::EmbedRequest texts;
  bool base64 = false;
  std::optional<int64_t> dimensions;
};

absl::Status parse_input(const json& input, pb::EmbedRequest& request) {
  if (input.is_string()) {
    request.add_texts(input.get_ref<const std::string&>());
  } else if (!input.is_array() || input.empty() || input.size() > kMaxEmbeddingTexts) {
    return invalid_field("input",
                         str_cat("must be a string or 1 to ", kMaxEmbeddingTexts, " strings"));
  } else {
    for (const json& text : input) {
      if (!text.is_string()) {
        return unsupported_field("input", "only strings, not arrays of token ids");
      }
      request.add_texts(text.get_ref<const std::string&>());
    }
  }
  for (int i = 0; i < request.texts_size(); ++i) {
    RAG_RETURN_IF_ERROR(
        check_bytes(str_cat("input[", i, "]"), request.texts(i), 1, kMaxEmbeddingBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<EmbeddingsBody> parse_embeddings(const json& body) {
  RAG_ASSIGN_OR_RETURN(const Fields fields, Fields::of(body, "", "body"));
  EmbeddingsBody parsed;
  RAG_ASSIGN_OR_RETURN(auto model, fields.text("model", 1, kMaxModelBytes));
  if (!model) return missing_field("model");
  parsed.model = *std::move(model);
  const json* input = fields.find("input");
  if (input == nullptr) return missing_field("input");
  RAG_RETURN_IF_ERROR(parse_input(*input, parsed.texts));
  RAG_ASSIGN_OR_RETURN(const auto encoding, fields.text("encoding_format"));
  parsed.base64 = encoding == "base64";
  if (encoding && !parsed.base64 && *encoding != "float") {
    return invalid_field("encoding_format", "must be float or base64");
  }
  RAG_ASSIGN_OR_RETURN(parsed.dimensions, fields.integer("dimensions"));
  fields.ignore({"user"});
  RAG_RETURN_IF_ERROR(fields.refuse_others());
  return parsed;
}

OutJson embedding_json(const pb::EmbedResponse::Embedding& embedding, bool base64) {
  const auto& values = embedding.values();
  if (base64) {  // of little-endian floats, as they lie in memory here
    return absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(values.data()),
                                                static_cast<size_t>(values.size()) * 4));
  }
  OutJson numbers = OutJson::array();
  for (float value : values) numbers.push_back(printed_float(value));
  return numbers;
}

}  // namespace

awaitable<absl::Status> handle_search(Call& call) {
  absl::StatusOr<json> body = co_await read_json(call);
  if (!body.ok()) co_return body.status();
  absl::StatusOr<pb::SearchRequest> request = parse_search(*body, call.config());
  if (!request.ok()) co_return request.status();
  if (!request->embedding().empty()) {
    absl::StatusOr<EmbedderInfo> embedder =
        co_await backend::find_embedder(call, std::string(kModelAlias));
    if (!embedder.ok()) co_return embedder.status();
    if (static_cast<uint32_t>(request->embedding_size()) != embedder->dimension) {
      co_return invalid_field(
          "embedding", str_cat("must hold ", embedder->dimension,
                               " numbers, the index's dimension, not ", request->embedding_size()));
    }
  }
  absl::StatusOr<pb::SearchResponse> found = co_await backend::search(call, *std::move(request));
  if (!found.ok()) co_return found.status();
  OutJson value = search_json(*found);
  co_return co_await respond_json(call, std::move(value));
}

awaitable<absl::Status> handle_embeddings(Call& call) {
  absl::StatusOr<json> json_body = co_await read_json(call);
  if (!json_body.ok()) co_return json_body.status();
  absl::StatusOr<EmbeddingsBody> body = parse_embeddings(*json_body);
  if (!body.ok()) co_return body.status();
  absl::StatusOr<EmbedderInfo> embedder = co_await backend::find_embedder(call, body->model);
  if (!embedder.ok()) co_return embedder.status();
  if (body->dimensions && *body->dimensions != embedder->dimension) {
    co_return unsupported_field(
        "dimensions", str_cat("only ", embedder->dimension, ", those of ", embedder->name));
  }

  OutJson data = OutJson::array();
  uint64_t tokens = 0;
  auto& texts = *body->texts.mutable_texts();
  for (int first = 0; first < texts.size(); first += kEmbedBatch) {
    pb::EmbedRequest request;
    for (int i = first; i < std::min(first + kEmbedBatch, texts.size()); ++i) {
      *request.add_texts() = std::move(texts[i]);
    }
    const int asked = request.texts_size();
    absl::StatusOr<pb::EmbedResponse> embedded = co_await backend::embed(call, std::move(request));
    if (!embedded.ok()) co_return embedded.status();
    if (embedded->embeddings_size() != asked) {
      co_return absl::InternalError("retrieval gave another number of embeddings");
    }
    tokens += embedded->tokens();
    for (const auto& embedding : embedded->embeddings()) {
      OutJson one = {{"object", "embedding"}, {"index", data.size()}};
      one["embedding"] = embedding_json(embedding, body->base64);
      data.push_back(std::move(one));
    }
  }
  OutJson value = {{"object", "list"}, {"data", std::move(data)}, {"model", embedder->name}};
  value["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace ragcache::gateway
