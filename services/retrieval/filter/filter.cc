#include "services/retrieval/filter/filter.h"

#include <algorithm>
#include <cmath>

#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

using Operator = Filter::Operator;

bool compares(Operator op, const MetadataValue& value, const MetadataValue& bound) {
  if (value.index() != bound.index()) return false;
  switch (op) {
    case Operator::kLess:
      return value < bound;
    case Operator::kLessOrEqual:
      return value <= bound;
    case Operator::kGreater:
      return value > bound;
    default:
      return value >= bound;
  }
}

bool meets(const Filter::Condition& condition, const MetadataField* field) {
  const auto is_listed = [&](const MetadataValue& value) {
    return std::ranges::find(condition.values, value) != condition.values.end();
  };
  switch (condition.op) {
    case Operator::kIn:
      return field != nullptr && std::ranges::any_of(field->values, is_listed);
    case Operator::kNotIn:
      return field == nullptr || std::ranges::none_of(field->values, is_listed);
    case Operator::kExists:
      return (field != nullptr) == std::get<bool>(condition.values[0]);
    default:
      return field != nullptr &&
             std::ranges::any_of(field->values, [&](const MetadataValue& value) {
               return compares(condition.op, value, condition.values[0]);
             });
  }
}

absl::Status check_condition(const Filter::Condition& condition, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(str_cat(name, what));
  };
  if (condition.field.empty() || condition.field.size() > MetadataLimits::kNameBytes) {
    return refuse(str_cat(".field: ", condition.field.size(), " bytes, must be 1..",
                          MetadataLimits::kNameBytes));
  }
  for (size_t i = 0; i < condition.values.size(); ++i) {
    const auto* number = std::get_if<double>(&condition.values[i]);
    if (number != nullptr && !std::isfinite(*number)) {
      return refuse(str_cat(".values[", i, "]: is not a finite number"));
    }
  }
  switch (condition.op) {
    case Operator::kIn:
    case Operator::kNotIn:
      if (condition.values.empty() || condition.values.size() > Filter::kValuesMax) {
        return refuse(
            str_cat(".values: ", condition.values.size(), ", must be 1..", Filter::kValuesMax));
      }
      return absl::OkStatus();
    case Operator::kExists:
      if (condition.values.size() != 1 || !std::holds_alternative<bool>(condition.values[0])) {
        return refuse(".values: must be one flag");
      }
      return absl::OkStatus();
    default:
      if (condition.values.size() != 1 || std::holds_alternative<bool>(condition.values[0])) {
        return refuse(".values: must be one number or one text");
      }
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status check_filter(const Filter& filter) {
  if (filter.conditions.size() > Filter::kConditionsMax) {
    return absl::InvalidArgumentError(str_cat("filter.conditions: ", filter.conditions.size(),
                                              ", at most ", Filter::kConditionsMax));
  }
  for (size_t i = 0; i < filter.conditions.size(); ++i) {
    const absl::Status status =
        check_condition(filter.conditions[i], str_cat("filter.conditions[", i, "]"));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool matches(const Filter& filter, const Metadata& metadata) {
  return std::ranges::all_of(filter.conditions, [&](const Filter::Condition& condition) {
    const auto field =
        std::ranges::lower_bound(metadata, condition.field, {}, &MetadataField::name);
    const bool found = field != metadata.end() && field->name == condition.field;
    return meets(condition, found ? &*field : nullptr);
  });
}

}  // namespace ragcache::retrieval
