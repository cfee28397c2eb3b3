#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/hash.h"

namespace ragcache {

// Names the KV of a run of tokens after one chain of earlier segments: equal ids mean equal
// tokens at equal positions under one model and cache scope.
struct SegmentId {
  std::array<uint8_t, 16> bytes{};

  // The parent id of a chain's first segment. Scopes that differ never share KV.
  static SegmentId root(const Digest& model_fingerprint, std::string_view scope);
  // First half of SHA-256(parent ‖ token digest).
  static SegmentId derive(const SegmentId& parent, const Digest& token_digest);
  static absl::StatusOr<SegmentId> parse(std::string_view bytes);

  std::string_view as_bytes() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string to_string() const { return to_hex(bytes); }

  auto operator<=>(const SegmentId&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const SegmentId& id) {
    return H::combine(std::move(h), id.bytes);
  }
};

// 32 random hexadecimal digits, fit for a trace id.
std::string new_request_id();

}  // namespace ragcache
