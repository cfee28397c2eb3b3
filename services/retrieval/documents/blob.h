#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/hash.h"

// Arrays as blobs. Private to documents/.
namespace ragcache::retrieval {

static_assert(std::endian::native == std::endian::little,
              "embeddings and tokens are stored little-endian, as they lie in memory");

template <typename T>
std::span<const uint8_t> as_blob(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

// A blob has no alignment of its own, hence the copy.
template <typename T>
std::vector<T> from_blob(std::span<const uint8_t> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

inline Digest digest_from(std::span<const uint8_t> bytes) {
  Digest digest = {};
  std::memcpy(digest.data(), bytes.data(), std::min(bytes.size(), digest.size()));
  return digest;
}

}  // namespace ragcache::retrieval
