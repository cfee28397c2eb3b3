#include "services/retrieval/convert.h"

#include <utility>
#include <vector>

#include "common/rpc/server.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

absl::Status add_metadata(const std::string& json, types::v1::Document& message) {
  RAG_ASSIGN_OR_RETURN(const Metadata metadata, parse_metadata(json));
  for (const MetadataField& field : metadata) {
    types::v1::MetadataField& added = *message.add_metadata();
    added.set_name(field.name);
    for (const MetadataValue& value : field.values) {
      types::v1::Value& made = *added.add_values();
      if (const auto* text = std::get_if<std::string>(&value)) made.set_text(*text);
      if (const auto* number = std::get_if<double>(&value)) made.set_number(*number);
      if (const auto* flag = std::get_if<bool>(&value)) made.set_flag(*flag);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MetadataValue> value_from(const types::v1::Value& value, const std::string& field) {
  switch (value.kind_case()) {
    case types::v1::Value::kText:
      return value.text();
    case types::v1::Value::kNumber:
      return value.number();
    case types::v1::Value::kFlag:
      return value.flag();
    case types::v1::Value::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(str_cat(field, ": is neither text, number nor flag"));
}

absl::StatusOr<Filter::Operator> operator_from(types::v1::Filter::Operator op,
                                               const std::string& field) {
  switch (op) {
    case types::v1::Filter::OPERATOR_IN:
      return Filter::Operator::kIn;
    case types::v1::Filter::OPERATOR_NOT_IN:
      return Filter::Operator::kNotIn;
    case types::v1::Filter::OPERATOR_LESS:
      return Filter::Operator::kLess;
    case types::v1::Filter::OPERATOR_LESS_OR_EQUAL:
      return Filter::Operator::kLessOrEqual;
    case types::v1::Filter::OPERATOR_GREATER:
      return Filter::Operator::kGreater;
    case types::v1::Filter::OPERATOR_GREATER_OR_EQUAL:
      return Filter::Operator::kGreaterOrEqual;
    case types::v1::Filter::OPERATOR_EXISTS:
      return Filter::Operator::kExists;
    default:
      return absl::InvalidArgumentError(str_cat(field, ": is not one of the operators"));
  }
}

}  // namespace

std::string to_bytes(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

absl::Status to_message(const DocumentRecord& record, float score, types::v1::Document& message) {
  message.set_id(record.id);
  message.set_source_id(record.source_id);
  message.set_title(record.title);
  message.set_text(record.text);
  message.set_score(score);
  message.set_content_digest(to_bytes(record.content_digest));
  message.mutable_segment_tokens()->Add(record.segment_tokens.begin(), record.segment_tokens.end());
  message.set_token_digest(to_bytes(record.token_digest));
  return add_metadata(record.metadata, message);
}

absl::Status to_message(const DocumentSummary& summary, types::v1::Document& message) {
  message.set_id(summary.id);
  message.set_title(summary.title);
  message.set_content_digest(to_bytes(summary.content_digest));
  return add_metadata(summary.metadata, message);
}

types::v1::CacheScope to_message(CacheScope scope) {
  return scope == CacheScope::kShared ? types::v1::CACHE_SCOPE_SHARED
                                      : types::v1::CACHE_SCOPE_TENANT;
}

void to_message(const Corpus& corpus, v1::Corpus& message) {
  const CorpusRecord record = corpus.record();
  message.set_name(record.name);
  message.set_cache_scope(to_message(record.settings.cache_scope));
  const ChunkOptions& cut = corpus.cut();
  message.set_chunk_tokens(cut.max_tokens);
  message.set_chunk_overlap_tokens(cut.overlap_tokens);
  message.set_documents(record.documents);
  message.set_pieces(record.pieces);
  message.set_index_kind(std::string(corpus.index_kind()));
}

absl::Status check_length(const google::protobuf::Message& answer, std::string_view field) {
  const size_t bytes = answer.ByteSizeLong();
  if (bytes <= kMaxMessageBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(str_cat(field, ": the documents make an answer of ", bytes,
                                            " bytes, at most ", kMaxMessageBytes,
                                            "; ask for fewer"));
}

absl::StatusOr<CorpusSettings> settings_from(const v1::Corpus& message) {
  CorpusSettings settings;
  switch (message.cache_scope()) {
    case types::v1::CACHE_SCOPE_UNSPECIFIED:
    case types::v1::CACHE_SCOPE_TENANT:
      break;
    case types::v1::CACHE_SCOPE_SHARED:
      settings.cache_scope = CacheScope::kShared;
      break;
    default:
      return absl::InvalidArgumentError("corpus.cache_scope: must be tenant or shared");
  }
  if (message.has_chunk_tokens()) settings.chunk_tokens = message.chunk_tokens();
  if (message.has_chunk_overlap_tokens()) {
    settings.chunk_overlap_tokens = message.chunk_overlap_tokens();
  }
  return settings;
}

absl::StatusOr<Filter> filter_from(const types::v1::Filter& message) {
  Filter filter;
  for (int i = 0; i < message.conditions_size(); ++i) {
    const types::v1::Filter::Condition& condition = message.conditions(i);
    const std::string name = str_cat("filter.conditions[", i, "]");
    Filter::Condition& made = filter.conditions.emplace_back();
    made.field = condition.field();
    RAG_ASSIGN_OR_RETURN(made.op, operator_from(condition.op(), name + ".op"));
    for (int v = 0; v < condition.values_size(); ++v) {
      RAG_ASSIGN_OR_RETURN(made.values.emplace_back(),
                           value_from(condition.values(v), str_cat(name, ".values[", v, "]")));
    }
  }
  RAG_RETURN_IF_ERROR(check_filter(filter));
  return filter;
}

}  // namespace ragcache::retrieval
