#include "services/gateway/request/filter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

using nlohmann::json;
using types::v1::Filter;
using types::v1::Value;

constexpr struct {
  std::string_view name;
  Filter::Operator op;
  bool takes_list;
} kOperators[] = {
    {"eq", Filter::OPERATOR_IN, false},         {"ne", Filter::OPERATOR_NOT_IN, false},
    {"in", Filter::OPERATOR_IN, true},          {"nin", Filter::OPERATOR_NOT_IN, true},
    {"lt", Filter::OPERATOR_LESS, false},       {"lte", Filter::OPERATOR_LESS_OR_EQUAL, false},
    {"gt", Filter::OPERATOR_GREATER, false},    {"gte", Filter::OPERATOR_GREATER_OR_EQUAL, false},
    {"exists", Filter::OPERATOR_EXISTS, false},
};

absl::Status add_value(const std::string& name, const json& value, Filter::Condition& condition) {
  if (value.is_string()) {
    condition.add_values()->set_text(value.get_ref<const std::string&>());
  } else if (value.is_number()) {
    condition.add_values()->set_number(value.get<double>());
  } else if (value.is_boolean()) {
    condition.add_values()->set_flag(value.get<bool>());
  } else {
    return invalid_field(name,
                         str_cat("must be a string, a number or a boolean, not ", kind_of(value)),
                         "invalid_type");
  }
  return absl::OkStatus();
}

absl::Status parse_operator(const std::string& field, const std::string& name,
                            std::string_view operator_name, const json& value, Filter& filter) {
  const auto known = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& row) { return row.name == operator_name; });
  if (known == std::end(kOperators)) {
    return invalid_field(name, "unknown operator; known: eq, ne, in, nin, lt, lte, gt, gte, exists",
                         "unknown_parameter");
  }
  Filter::Condition& condition = *filter.add_conditions();
  condition.set_field(field);
  condition.set_op(known->op);
  if (!known->takes_list) return add_value(name, value, condition);
  if (!value.is_array()) {
    return invalid_field(name, str_cat("must be an array, not ", kind_of(value)), "invalid_type");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    RAG_RETURN_IF_ERROR(add_value(str_cat(name, "[", i, "]"), value[i], condition));
  }
  return absl::OkStatus();
}

// Values that a condition's operator can be asked with.
absl::Status check_values(const std::string& name, const Filter::Condition& condition) {
  if (condition.values().empty() || condition.values_size() > kMaxFieldValues) {
    return invalid_field(name, str_cat("must have 1 to ", kMaxFieldValues, " values, not ",
                                       condition.values_size()));
  }
  const Value& first = condition.values(0);
  switch (condition.op()) {
    case Filter::OPERATOR_IN:
    case Filter::OPERATOR_NOT_IN:
      break;
    case Filter::OPERATOR_LESS:
    case Filter::OPERATOR_LESS_OR_EQUAL:
    case Filter::OPERATOR_GREATER:
    case Filter::OPERATOR_GREATER_OR_EQUAL:
      if (condition.values_size() != 1 || !(first.has_number() || first.has_text())) {
        return invalid_field(name, "lt, lte, gt and gte take one number or string");
      }
      break;
    case Filter::OPERATOR_EXISTS:
      if (condition.values_size() != 1 || !first.has_flag()) {
        return invalid_field(name, "exists takes true or false");
      }
      break;
    default:
      return invalid_field(name, "the operator is missing or unknown");
  }
  for (const Value& value : condition.values()) {
    if (value.kind_case() == Value::KIND_NOT_SET) return invalid_field(name, "a value is not set");
    if (value.has_number() && !std::isfinite(value.number())) {
      return invalid_field(name, "must be a finite number");
    }
    RAG_RETURN_IF_ERROR(check_bytes(name, value.text(), 0, kMaxFieldTextBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_filter(std::string_view name, const Filter& filter) {
  if (filter.conditions_size() > kMaxConditions) {
    return invalid_field(name, str_cat("must hold at most ", kMaxConditions, " conditions, not ",
                                       filter.conditions_size()));
  }
  for (const Filter::Condition& condition : filter.conditions()) {
    RAG_RETURN_IF_ERROR(
        check_bytes(str_cat(name, ": a field's name"), condition.field(), 1, kMaxFieldNameBytes));
    RAG_RETURN_IF_ERROR(check_values(str_cat(name, ".", condition.field()), condition));
  }
  return absl::OkStatus();
}

absl::Status parse_filter(const std::string& name, const json& value, Filter& filter) {
  if (!value.is_object()) {
    return invalid_field(name, str_cat("must be an object, not ", kind_of(value)), "invalid_type");
  }
  for (const auto& [field, wanted] : value.items()) {
    const std::string path = str_cat(name, ".", field.substr(0, kMaxFieldNameBytes));
    if (!wanted.is_object()) {
      RAG_RETURN_IF_ERROR(parse_operator(field, path, "eq", wanted, filter));
      continue;
    }
    if (wanted.empty()) return invalid_field(path, "must name an operator");
    for (const auto& [operator_name, operand] : wanted.items()) {
      RAG_RETURN_IF_ERROR(parse_operator(field, str_cat(path, ".", operator_name.substr(0, 100)),
                                         operator_name, operand, filter));
    }
  }
  return absl::OkStatus();
}

absl::Status check_search(retrieval::v1::SearchRequest& request, uint32_t default_top_k,
                          uint32_t max_top_k) {
  if (request.embedding().empty()) {
    if (request.query().empty()) {
      return invalid_field("query", "is required, or an embedding", "missing_required_parameter");
    }
    RAG_RETURN_IF_ERROR(check_bytes("query", request.query(), 1, kMaxQueryBytes));
  } else {
    if (!request.query().empty()) {
      return invalid_field("embedding", "cannot be given with a query");
    }
    if (request.embedding_size() > kMaxEmbeddingDimension) {
      return invalid_field("embedding", str_cat("must hold at most ", kMaxEmbeddingDimension,
                                                " numbers, not ", request.embedding_size()));
    }
    const auto& values = request.embedding();
    if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
      return invalid_field("embedding", "must hold finite numbers");
    }
    if (std::all_of(values.begin(), values.end(), [](float x) { return x == 0; })) {
      return invalid_field("embedding", "must not be all zeros");
    }
  }
  if (request.top_k() == 0) request.set_top_k(default_top_k);
  if (request.top_k() > max_top_k) {
    return invalid_field("top_k", str_cat("must be 1 to ", max_top_k, ", not ", request.top_k()));
  }
  RAG_RETURN_IF_ERROR(check_corpus("corpus", request.corpus()));
  return check_filter("filter", request.filter());
}

}  // namespace ragcache::gateway
