#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/retrieval/filter/metadata.h"

namespace ragcache::retrieval {

// Documents whose metadata meet every condition.
struct Filter {
  enum class Operator {
    kIn,     // one of the field's values is one of `values`
    kNotIn,  // none is; met by documents without the field
    // One of the field's values compares so with the only one of `values`: numbers by value, texts
    // by bytes. Values of another kind do not meet it.
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kExists,  // or does not, if the only one of `values` is false
  };
  struct Condition {
    std::string field;
    Operator op = Operator::kIn;
    std::vector<MetadataValue> values;
  };

  static constexpr size_t kConditionsMax = 32;
  static constexpr size_t kValuesMax = 1000;

  std::vector<Condition> conditions;
};

// INVALID_ARGUMENT names the condition and what is wrong with it, beginning with "filter".
absl::Status check_filter(const Filter& filter);

// REQUIRES: check_filter() is OK.
bool matches(const Filter& filter, const Metadata& metadata);

}  // namespace ragcache::retrieval
