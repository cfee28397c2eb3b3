#include "services/worker/profile/prefill_profile.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/json/json_object.h"
#include "common/status.h"
#include "common/store/file.h"

namespace ragcache::worker {
namespace {

constexpr uint32_t kCachedTokens[] = {0, 512, 1024, 2048, 4096};
constexpr uint32_t kNewTokens[] = {16, 64, 128, 256, 512, 1024};

}  // namespace

PrefillProfile profile_grid(ProfileKey key, uint32_t max_tokens) {
  PrefillProfile profile{.key = std::move(key)};
  for (const uint32_t tokens : kNewTokens) {
    if (tokens <= max_tokens) profile.new_tokens.push_back(tokens);
  }
  if (profile.new_tokens.empty()) profile.new_tokens.push_back(max_tokens);
  for (const uint32_t tokens : kCachedTokens) {
    if (tokens + profile.new_tokens.front() <= max_tokens) profile.cached_tokens.push_back(tokens);
  }
  profile.seconds.assign(profile.cached_tokens.size() * profile.new_tokens.size(), 0);
  return profile;
}

absl::StatusOr<PrefillProfile> load_profile(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return absl::NotFoundError(path + " is not there");
  RAG_ASSIGN_OR_RETURN(const JsonObject file, JsonObject::open(path));
  PrefillProfile profile;
  RAG_ASSIGN_OR_RETURN(const std::string fingerprint, file.get_string("model_fingerprint"));
  RAG_ASSIGN_OR_RETURN(profile.key.machine, file.get_string("machine"));
  const absl::Status bad = absl::InvalidArgumentError(path + " holds no prefill profile");
  try {
    file.json().at("cached_tokens").get_to(profile.cached_tokens);
    file.json().at("new_tokens").get_to(profile.new_tokens);
    file.json().at("seconds").get_to(profile.seconds);
  } catch (const nlohmann::json::exception&) {
    return bad;
  }
  if (fingerprint.size() != 2 * profile.key.model_fingerprint.size()) return bad;
  for (size_t i = 0; i < profile.key.model_fingerprint.size(); ++i) {
    char* end = nullptr;
    const std::string byte = fingerprint.substr(2 * i, 2);
    profile.key.model_fingerprint[i] = static_cast<uint8_t>(std::strtoul(byte.c_str(), &end, 16));
    if (*end != '\0') return bad;
  }
  const auto rises = [](const std::vector<uint32_t>& axis) {
    return !axis.empty() &&
           std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end();
  };
  if (!rises(profile.cached_tokens) || !rises(profile.new_tokens) ||
      profile.seconds.size() != profile.cached_tokens.size() * profile.new_tokens.size() ||
      std::any_of(profile.seconds.begin(), profile.seconds.end(),
                  [](double seconds) { return !(seconds > 0); })) {
    return bad;
  }
  return profile;
}

absl::Status save_profile(const PrefillProfile& profile, const std::string& path) {
  const nlohmann::json json = {{"model_fingerprint", to_hex(profile.key.model_fingerprint)},
                               {"machine", profile.key.machine},
                               {"cached_tokens", profile.cached_tokens},
                               {"new_tokens", profile.new_tokens},
                               {"seconds", profile.seconds}};
  const std::string text = json.dump(1) + "\n";
  RAG_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file.commit();
}

std::string machine_name(int threads, const std::string& kv_dtype, const std::string& activations,
                         uint32_t max_batch_tokens) {
  std::string processor = "unknown processor";
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) processor = line.substr(colon + 2);
    break;
  }
  return absl::StrCat(processor, ", ", threads, " threads, KV in ", kv_dtype, ", activations in ",
                      activations, ", batches of ", max_batch_tokens);
}

}  // namespace ragcache::worker
