#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Clients' messages as they come. gRPC's generated code keeps from a service what it cannot parse,
// texts that are not UTF-8 among that: it ends such a call as UNIMPLEMENTED, without a word, and an
// upload as if its client had finished it. So the front parses by itself.
namespace ragcache::gateway {

using Bytes = grpc::ByteBuffer;

// INVALID_ARGUMENT names the text that is not UTF-8, or the type that the bytes are no message of.
absl::Status parse_message(const Bytes& bytes, google::protobuf::Message& message);

template <typename Message>
absl::StatusOr<Message> parse_message(const Bytes& bytes) {
  Message message;
  if (absl::Status status = parse_message(bytes, message); !status.ok()) return status;
  return message;
}

Bytes to_bytes(const google::protobuf::Message& message);

}  // namespace ragcache::gateway
