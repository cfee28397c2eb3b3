#include "common/hash.h"

#include <openssl/evp.h>

#include <bit>

#include "common/check.h"

namespace ragcache {
namespace {
EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  RAG_CHECK(context_ != nullptr &&
            EVP_DigestInit_ex(as_context(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(as_context(context_)); }

Sha256& Sha256::update(std::span<const uint8_t> bytes) {
  RAG_CHECK(EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size()) == 1);
  return *this;
}

Sha256& Sha256::update(std::string_view bytes) {
  return update({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Digest Sha256::finish() {
  Digest digest;
  RAG_CHECK(EVP_DigestFinal_ex(as_context(context_), digest.data(), nullptr) == 1);
  return digest;
}

Digest sha256(std::string_view bytes) { return Sha256().update(bytes).finish(); }

Digest digest_of_tokens(std::span<const uint32_t> tokens) {
  static_assert(std::endian::native == std::endian::little);
  return Sha256()
      .update({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()})
      .finish();
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

}  // namespace ragcache
