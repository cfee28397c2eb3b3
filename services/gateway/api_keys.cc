#include "services/gateway/api_keys.h"

#include <algorithm>
#include <fstream>

#include "common/http/message.h"
#include "common/strings.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {
namespace {

constexpr size_t kMaxKeys = 10'000;
constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxKeyBytes = 512;

// What follows "Bearer "; nothing if the header has another scheme.
std::string_view token_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!http::equals_ignore_case(authorization.substr(0, kScheme.size()), kScheme)) return {};
  return authorization.substr(kScheme.size());
}

// Digests have one length and tell nothing about how much of a key was right.
bool same(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

bool is_tenant(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantBytes && http::is_valid_request_id(name);
}

bool is_key(std::string_view key) {
  return key.size() >= kMinKeyBytes && key.size() <= kMaxKeyBytes &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

bool bears_key(std::string_view authorization, std::string_view key) {
  const std::string_view token = token_of(authorization);
  return same(sha256(token), sha256(key)) && !token.empty();
}

absl::StatusOr<ApiKeys> ApiKeys::load(const std::string& path) {
  ApiKeys keys;
  if (path.empty()) return keys;
  keys.open_ = false;
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(str_cat("api_keys_file: cannot read ", path));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    const auto fail = [&](std::string_view what) {
      return absl::InvalidArgumentError(str_cat("api_keys_file: ", path, ":", number, ": ", what));
    };
    const size_t colon = line.find(':');
    const std::string tenant = line.substr(0, colon);
    if (colon == std::string::npos || !is_tenant(tenant)) {
      return fail(str_cat("must be tenant:key, the tenant 1 to ", kMaxTenantBytes,
                          " of A-Z, a-z, 0-9, '-', '_', '.'"));
    }
    const std::string key = line.substr(colon + 1);
    if (!is_key(key)) {
      return fail(str_cat("the key must be ", kMinKeyBytes, " to ", kMaxKeyBytes,
                          " visible ASCII characters"));
    }
    const Digest digest = sha256(key);
    for (const Entry& entry : keys.entries_) {
      if (entry.key_digest == digest) return fail("the key is there already");
    }
    if (keys.entries_.size() == kMaxKeys) return fail(str_cat("more than ", kMaxKeys, " keys"));
    keys.entries_.push_back({digest, tenant});
  }
  if (keys.entries_.empty()) {
    return absl::InvalidArgumentError(str_cat("api_keys_file: ", path, " holds no key"));
  }
  return keys;
}

absl::StatusOr<std::string> ApiKeys::tenant_of(std::string_view authorization) const {
  if (open_) return std::string(kDefaultTenant);
  const std::string_view token = token_of(authorization);
  const Digest given = sha256(token);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (same(entry.key_digest, given)) found = &entry;
  }
  if (found != nullptr) return found->tenant;
  return absl::UnauthenticatedError(
      token.empty() ? "this needs an API key in the header `Authorization: Bearer KEY`"
                    : "the API key is not known");
}

}  // namespace ragcache::gateway
