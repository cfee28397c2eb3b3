#include "services/gateway/request/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/utf8.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {
namespace {

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

// A noncharacter that stands for the first bytes that are not UTF-8.
constexpr char kMarker[] = "\xf4\x8f\xbf\xbf";

// Where `value` holds the marker: ".messages[0].content".
std::optional<std::string> path_of_marker(const nlohmann::json& value) {
  if (value.is_string()) {
    const bool here = value.get_ref<const std::string&>().find(kMarker) != std::string::npos;
    return here ? std::optional<std::string>("") : std::nullopt;
  }
  if (!value.is_structured()) return std::nullopt;
  for (const auto& [key, member] : value.items()) {
    if (key.find(kMarker) != std::string::npos) return "";
    if (auto path = path_of_marker(member)) {
      return str_cat(value.is_array() ? str_cat("[", key, "]") : str_cat(".", key), *path);
    }
  }
  return std::nullopt;
}

// Names the field whose text is not UTF-8. OK if all of it is.
absl::Status check_utf8(std::string_view text) {
  size_t at = 0;
  Utf8Char character{.n_bytes = 0, .valid = true};
  while (at < text.size() && (character = read_utf8(text, at)).valid) at += character.n_bytes;
  if (at == text.size()) return absl::OkStatus();
  const std::string marked =
      str_cat(text.substr(0, at), kMarker, text.substr(at + character.n_bytes));
  std::string whole;  // with the rest of what is not UTF-8 replaced
  for (size_t i = 0; i < marked.size();) {
    const Utf8Char next = read_utf8(marked, i);
    whole += next.valid ? marked.substr(i, next.n_bytes) : "?";
    i += next.n_bytes;
  }
  const auto value = nlohmann::json::parse(whole, nullptr, false);
  std::string path = path_of_marker(value).value_or("");
  if (path.starts_with('.')) path.erase(0, 1);
  return invalid_field(path.empty() ? "body" : path, str_cat("must be UTF-8: see byte ", at));
}

}  // namespace

std::string_view kind_of(const nlohmann::json& value) {
  if (value.is_number_float()) return "a fraction";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "an array";
  return value.is_null() ? "null" : "an object";
}

absl::StatusOr<nlohmann::json> parse_json(std::string_view text) {
  if (absl::Status depth = check_depth(text); !depth.ok()) {
    return with_details(depth, "", "invalid_json");
  }
  RAG_RETURN_IF_ERROR(check_utf8(text));
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
  asked_.emplace_back(name);
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

absl::StatusOr<std::optional<double>> Fields::number(std::string_view name) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return wrong_type(path_of(name), "a number", *value);
  return value->get<double>();
}

absl::StatusOr<std::optional<std::string>> Fields::text(std::string_view name, size_t min_bytes,
                                                        size_t max_bytes) const {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(path_of(name), "a string", *value);
  const auto& string = value->get_ref<const std::string&>();
  RAG_RETURN_IF_ERROR(check_bytes(path_of(name), string, min_bytes, max_bytes));
  return string;
}

void Fields::ignore(std::initializer_list<std::string_view> names) const {
  asked_.insert(asked_.end(), names.begin(), names.end());
}

absl::Status Fields::refuse_others() const {
  for (const auto& [name, value] : object_->items()) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
      return invalid_field(path_of(name.substr(0, 100)), "unknown parameter", "unknown_parameter");
    }
  }
  return absl::OkStatus();
}

}  // namespace ragcache::gateway
