#include "services/gateway/request/field_error.h"

#include "absl/strings/cord.h"
#include "common/strings.h"

namespace ragcache::gateway {
namespace {

constexpr char kParam[] = "ragcache/param";
constexpr char kCode[] = "ragcache/code";

std::optional<std::string> payload(const absl::Status& status, const char* name) {
  const auto cord = status.GetPayload(name);
  if (!cord) return std::nullopt;
  return std::string(*cord);
}

absl::Status with_message(const absl::Status& status, const std::string& message) {
  absl::Status told(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view name, const absl::Cord& value) { told.SetPayload(name, value); });
  return told;
}

}  // namespace

absl::Status with_details(absl::Status status, std::string_view param, std::string_view code) {
  if (!param.empty()) status.SetPayload(kParam, absl::Cord(std::string(param)));
  if (!code.empty()) status.SetPayload(kCode, absl::Cord(std::string(code)));
  return status;
}

absl::Status invalid_field(std::string_view param, std::string_view message,
                           std::string_view code) {
  return with_details(absl::InvalidArgumentError(str_cat(param, ": ", message)), param, code);
}

absl::Status missing_field(std::string_view param) {
  return invalid_field(param, "is required", "missing_required_parameter");
}

absl::Status unsupported_field(std::string_view param, std::string_view only) {
  return invalid_field(param, str_cat("is not supported; ", only), "unsupported_parameter");
}

absl::Status check_bytes(std::string_view param, std::string_view value, size_t min, size_t max) {
  if (value.size() >= min && value.size() <= max) return absl::OkStatus();
  return invalid_field(param,
                       str_cat("must be ", min, " to ", max, " bytes long, not ", value.size()));
}

absl::Status with_prefix(const absl::Status& status, std::string_view text) {
  return with_message(status, str_cat(text, status.message()));
}

absl::Status with_suffix(const absl::Status& status, std::string_view text) {
  return with_message(status, str_cat(status.message(), text));
}

std::optional<std::string> param_of(const absl::Status& status) { return payload(status, kParam); }
std::optional<std::string> code_of(const absl::Status& status) { return payload(status, kCode); }

}  // namespace ragcache::gateway
