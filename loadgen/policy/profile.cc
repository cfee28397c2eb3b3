#include "loadgen/policy/profile.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/json/json_object.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using controller::PrefillCost;
using nlohmann::json;

absl::StatusOr<std::vector<uint32_t>> tokens_of(const JsonObject& profile, const char* field) {
  std::vector<uint32_t> values;
  const json& list = profile.json().value(field, json());
  for (const json& value : list) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT32_MAX) {
      return absl::InvalidArgumentError(str_cat(field, ": must be a list of token counts"));
    }
    values.push_back(value.get<uint32_t>());
  }
  return values;
}

absl::StatusOr<PrefillCost> read_table(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const JsonObject profile, JsonObject::open(path));
  RAG_ASSIGN_OR_RETURN(auto cached, tokens_of(profile, "cached_tokens"));
  RAG_ASSIGN_OR_RETURN(auto fresh, tokens_of(profile, "new_tokens"));
  std::vector<double> seconds;
  for (const json& value : profile.json().value("seconds", json())) {
    if (!value.is_number()) return absl::InvalidArgumentError("seconds: must be a list of numbers");
    seconds.push_back(value.get<double>());
  }
  return PrefillCost::create(std::move(cached), std::move(fresh), std::move(seconds));
}

}  // namespace

absl::StatusOr<PrefillCost> read_profile(const std::string& path) {
  absl::StatusOr<PrefillCost> table = read_table(path);
  if (table.ok()) return table;
  return absl::InvalidArgumentError(str_cat(path, ": ", table.status().message()));
}

}  // namespace ragcache::loadgen
