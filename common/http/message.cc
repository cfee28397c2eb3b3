#include "common/http/message.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

absl::StatusOr<std::string> decode_form(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return percent_decode(spaced);
}

}  // namespace

bool equals_ignore_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return absl::ascii_tolower(x) == absl::ascii_tolower(y);
  });
}

absl::StatusOr<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(std::min(colon + 1, text.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || digits.empty() || fault != std::errc() ||
      end != digits.data() + digits.size()) {
    return absl::InvalidArgumentError(
        str_cat("address `", text.substr(0, 200), "`: must be host:port, the port 0 to 65535"));
  }
  return HostPort{std::string(host), port};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

const std::string* Headers::find(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (equals_ignore_case(key, name)) return &value;
  }
  return nullptr;
}

std::string_view Headers::get(std::string_view name) const {
  const std::string* value = find(name);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

const std::string* find_parameter(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters) {
    if (key == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      return absl::InvalidArgumentError("the request target holds a malformed percent escape");
    }
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("-._~").find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return out;
}

absl::Status parse_target(std::string_view target, Request& request) {
  // Absolute form, which a proxy's client sends: the authority is not ours to route by.
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignore_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t slash = target.find_first_of("/?");
    target = slash == std::string_view::npos ? std::string_view() : target.substr(slash);
    if (target.empty() || target.front() == '?') {
      request.path.assign(1, '/');  // GCC 12 warns of a literal here (its bug 105651)
    }
    break;
  }
  const size_t question = target.find('?');
  if (std::string_view path = target.substr(0, question); !path.empty()) request.path = path;
  if (question == std::string_view::npos) return absl::OkStatus();
  for (std::string_view pair : split(target.substr(question + 1), '&')) {
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    RAG_ASSIGN_OR_RETURN(std::string name, decode_form(pair.substr(0, equals)));
    pair.remove_prefix(std::min(equals + 1, pair.size()));
    RAG_ASSIGN_OR_RETURN(std::string value, decode_form(pair));
    request.query.emplace_back(std::move(name), std::move(value));
  }
  return absl::OkStatus();
}

bool is_valid_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("._:-").find(c) != std::string_view::npos;
         });
}

bool is_valid_trace_parent(std::string_view value) {
  // version-trace id-parent id-flags, all in lower-case hexadecimal digits
  constexpr std::string_view kShape = "00-00000000000000000000000000000000-0000000000000000-00";
  if (value.size() != kShape.size()) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const bool digit = hex_digit(value[i]) >= 0 && !absl::ascii_isupper(value[i]);
    if (kShape[i] == '-' ? value[i] != '-' : !digit) return false;
  }
  const auto all_zeros = [](std::string_view id) {
    return id.find_first_not_of('0') == std::string_view::npos;
  };
  return !value.starts_with("ff") && !all_zeros(value.substr(3, 32)) &&
         !all_zeros(value.substr(36, 16));
}

}  // namespace ragcache::http
