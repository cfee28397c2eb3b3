#pragma once

#include <string>

#include "absl/status/status.h"

namespace google::protobuf {
class MessageLite;
}

namespace ragcache::retrieval {

// A file of one message, behind its SHA-256. Written whole or not at all.
absl::Status write_message_file(const std::string& path,
                                const google::protobuf::MessageLite& message);
// NOT_FOUND: no file. DATA_LOSS: damaged; names the file.
absl::Status read_message_file(const std::string& path, google::protobuf::MessageLite& message);

}  // namespace ragcache::retrieval
