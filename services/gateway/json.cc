#include "services/gateway/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/strings.h"
#include "services/gateway/openai_error.h"

namespace ragcache::gateway {
namespace {

std::string_view kind_of(const nlohmann::json& value) {
  if (value.is_number_float()) return "a fraction";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  return value.is_null() ? "null" : "an object";
}

absl::Status wrong_type(const std::string& name, std::string_view wanted,
                        const nlohmann::json& value) {
  return invalid_field(name, str_cat("must be ", wanted, ", not ", kind_of(value)), "invalid_type");
}

// The parser itself does not recurse, but what walks its result does.
absl::Status check_depth(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(
            str_cat("JSON is nested deeper than ", kMaxJsonDepth, " levels at byte ", i));
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> parse_json(std::string_view text) {
  if (absl::Status depth = check_depth(text); !depth.ok()) {
    return with_details(depth, "", "invalid_json");
  }
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& exception) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    std::string_view what = exception.what();
    what.remove_prefix(std::min(what.find("] ") + 2, what.size()));
    return with_details(
        absl::InvalidArgumentError(str_cat("the body is not valid JSON: ", what.substr(0, 300))),
        "", "invalid_json");
  }
}

std::string dump_json(const OutJson& value) {
  return value.dump(-1, ' ', false, OutJson::error_handler_t::replace);
}

bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(std::string(text)).dump().empty();
  } catch (const nlohmann::json::type_error&) {  // 316: the writer checks what it writes
    return false;
  }
}

double printed_float(float value) {
  char digits[32];
  const auto printed = std::to_chars(digits, digits + sizeof(digits), value);
  double result = value;
  std::from_chars(digits, printed.ptr, result);
  return result;
}

absl::StatusOr<Fields> Fields::of(const nlohmann::json& object, std::string path,
                                  std::string_view name) {
  if (!object.is_object()) return wrong_type(std::string(name), "an object", object);
  return Fields(object, std::move(path));
}

const nlohmann::json* Fields::find(std::string_view name) const {
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::path_of(std::string_view name) const { return str_cat(path_, name); }

absl::StatusOr<std::optional<bool>> Fields::boolean(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong_type(path_of(name), "a boolean", *value);
  return value->get<bool>();
}

absl::StatusOr<std::optional<int64_t>> Fields::integer(std::string_view name, int64_t min,
                                                       int64_t max) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(path_of(name), "a whole number", *value);
  // 5.0 is the integer 5; beyond 2^53 a fraction has no integer meaning.
  int64_t number = 0;
  bool in_range = true;
  if (value->is_number_float()) {
    const double real = value->get<double>();
    if (!(std::abs(real) < 9e15) || real != std::floor(real)) {
      return wrong_type(path_of(name), "a whole number", *value);
    }
    number = static_cast<int64_t>(real);
  } else if (value->is_number_unsigned()) {
    const uint64_t whole = value->get<uint64_t>();
    in_range = whole <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    number = static_cast<int64_t>(whole);
  } else {
    number = value->get<int64_t>();
  }
  if (!in_range || number < min || number > max) {
    return invalid_field(path_of(name),
                         str_cat("must be ", min, " to ", max, ", not ", value->dump()));
  }
  return number;
}

absl::StatusOr<std::optional<double>> Fields::number(std::string_view name, double min, double max,
                                                     bool above_min) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(path_of(name), "a number", *value);
  const double number = value->get<double>();
  if (!(number >= min && number <= max) || (above_min && number == min)) {
    return invalid_field(path_of(name), str_cat("must be ", above_min ? "above " : "", min, " to ",
                                                max, ", not ", value->dump()));
  }
  return number;
}

absl::StatusOr<std::optional<std::string>> Fields::text(std::string_view name, size_t min_bytes,
                                                        size_t max_bytes) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(path_of(name), "a string", *value);
  const auto& string = value->get_ref<const std::string&>();
  if (string.size() < min_bytes || string.size() > max_bytes) {
    return invalid_field(path_of(name), str_cat("must be ", min_bytes, " to ", max_bytes,
                                                " bytes long, not ", string.size()));
  }
  return string;
}

absl::Status Fields::refuse_others(std::initializer_list<std::string_view> known) const {
  for (const auto& [name, value] : object_->items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid_field(path_of(name.substr(0, 100)), "unknown parameter", "unknown_parameter");
    }
  }
  return absl::OkStatus();
}

}  // namespace ragcache::gateway
