#include "common/ids.h"

#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace ragcache {
namespace {

SegmentId first_half(const Digest& digest) {
  SegmentId id;
  std::copy_n(digest.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

}  // namespace

SegmentId SegmentId::root(const Digest& model_fingerprint, std::string_view scope) {
  return first_half(Sha256().update(model_fingerprint).update(scope).finish());
}

SegmentId SegmentId::derive(const SegmentId& parent, const Digest& token_digest) {
  return first_half(Sha256().update(parent.bytes).update(token_digest).finish());
}

absl::StatusOr<SegmentId> SegmentId::parse(std::string_view bytes) {
  SegmentId id;
  if (bytes.size() != id.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("segment id: ", bytes.size(), " bytes, must be ", id.bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

std::string new_request_id() {
  std::array<uint8_t, 16> bytes;
  RAG_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  return to_hex(bytes);
}

}  // namespace ragcache
