#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"

namespace ragcache::gateway {

inline constexpr std::string_view kDefaultTenant = "default";

// Whether an Authorization header carries `key`, in time that does not depend on where they differ.
bool bears_key(std::string_view authorization, std::string_view key);

// Who may ask, and for which tenant. Constant once loaded; any thread.
class ApiKeys {
 public:
  // A file of lines `tenant:key`, blank ones, and comments after '#' at a line's start; a tenant
  // may have several keys. INVALID_ARGUMENT names the bad line. No path: everybody is the default
  // tenant.
  static absl::StatusOr<ApiKeys> load(const std::string& path);

  // The tenant of an Authorization header; UNAUTHENTICATED if it bears no known key. Takes the same
  // time whichever key it is.
  absl::StatusOr<std::string> tenant_of(std::string_view authorization) const;

 private:
  struct Entry {
    Digest key_digest;
    std::string tenant;
  };
  std::vector<Entry> entries_;
  bool open_ = true;
};

}  // namespace ragcache::gateway
