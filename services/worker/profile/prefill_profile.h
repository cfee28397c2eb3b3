#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/hash.h"

namespace ragcache::worker {

// What a profile was measured on: it says nothing about another.
struct ProfileKey {
  Digest model_fingerprint{};
  std::string machine;  // processor, threads and what else prefill depends on

  bool operator==(const ProfileKey&) const = default;
};

// Prefill times T(cached, new) on a grid: seconds[i · new_tokens.size() + j] is that of
// new_tokens[j] behind cached_tokens[i]. Both axes rise.
struct PrefillProfile {
  ProfileKey key;
  std::vector<uint32_t> cached_tokens;
  std::vector<uint32_t> new_tokens;
  std::vector<double> seconds;
};

// An empty grid for prompts of at most `max_tokens`.
PrefillProfile profile_grid(ProfileKey key, uint32_t max_tokens);

// NOT_FOUND if there is no file, INVALID_ARGUMENT if it holds no profile.
absl::StatusOr<PrefillProfile> load_profile(const std::string& path);
absl::Status save_profile(const PrefillProfile& profile, const std::string& path);

// The processor's name and what the caller adds.
std::string machine_name(int threads, const std::string& kv_dtype, const std::string& activations,
                         uint32_t max_batch_tokens);

}  // namespace ragcache::worker
