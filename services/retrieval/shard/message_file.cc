#include "services/retrieval/shard/message_file.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <span>

#include "common/hash.h"
#include "common/status.h"
#include "common/store/file.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"

namespace ragcache::retrieval {
namespace {

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

absl::Status write_message_file(const std::string& path,
                                const google::protobuf::MessageLite& message) {
  const std::string bytes = message.SerializeAsString();
  RAG_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append(sha256(bytes)));
  RAG_RETURN_IF_ERROR(file.append(as_bytes(bytes)));
  return file.commit();
}

absl::Status read_message_file(const std::string& path, google::protobuf::MessageLite& message) {
  RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::span<const uint8_t> bytes = file.bytes();
  constexpr size_t kDigestBytes = std::tuple_size_v<Digest>;
  const bool is_whole = bytes.size() >= kDigestBytes &&
                        std::ranges::equal(bytes.first(kDigestBytes),
                                           Sha256().update(bytes.subspan(kDigestBytes)).finish());
  const auto payload = is_whole ? bytes.subspan(kDigestBytes) : bytes;
  if (!is_whole || !message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return absl::DataLossError(str_cat("file ", path, " is damaged"));
  }
  return absl::OkStatus();
}

}  // namespace ragcache::retrieval
