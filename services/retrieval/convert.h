#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "services/retrieval/corpus.h"

// Between the service's messages and what it works with.
namespace ragcache::retrieval {

std::string to_bytes(std::span<const uint8_t> bytes);

absl::Status to_message(const DocumentRecord& record, float score, types::v1::Document& message);
absl::Status to_message(const DocumentSummary& summary, types::v1::Document& message);
types::v1::CacheScope to_message(CacheScope scope);
void to_message(const Corpus& corpus, v1::Corpus& message);

// INVALID_ARGUMENT if the answer is longer than a message may be, which less in `field` would mend.
absl::Status check_length(const google::protobuf::Message& answer, std::string_view field);

// INVALID_ARGUMENT names the field.
absl::StatusOr<CorpusSettings> settings_from(const v1::Corpus& message);
absl::StatusOr<Filter> filter_from(const types::v1::Filter& message);

}  // namespace ragcache::retrieval
