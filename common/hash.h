#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ragcache {

using Digest = std::array<uint8_t, 32>;

// Incremental SHA-256 (FIPS 180-4, by OpenSSL). One digest per object.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& update(std::span<const uint8_t> bytes);
  Sha256& update(std::string_view bytes);
  // REQUIRES: called once, last.
  Digest finish();

 private:
  void* context_;
};

Digest sha256(std::string_view bytes);

// Digest of token ids as little-endian uint32.
Digest digest_of_tokens(std::span<const uint32_t> tokens);

std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace ragcache
