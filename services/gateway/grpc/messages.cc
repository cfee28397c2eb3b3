#include "services/gateway/grpc/messages.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <map>
#include <string>

#include "common/strings.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// The path of the first text that is not UTF-8 in `fields`, which are those of a `type`; empty if
// there is none.
std::string path_of_bad_text(const UnknownFieldSet& fields, const Descriptor& type) {
  std::map<int, int> seen;  // how many of each number
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    const int index = seen[field.number()]++;
    const FieldDescriptor* declared = type.FindFieldByNumber(field.number());
    if (declared == nullptr || field.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    std::string path = declared->name();
    if (declared->is_repeated()) path += str_cat("[", index, "]");
    if (declared->type() == FieldDescriptor::TYPE_STRING) {
      if (!is_utf8(field.length_delimited())) return path;
    } else if (declared->type() == FieldDescriptor::TYPE_MESSAGE) {
      UnknownFieldSet inner;
      if (!inner.ParseFromString(field.length_delimited())) continue;
      const std::string below = path_of_bad_text(inner, *declared->message_type());
      if (!below.empty()) return str_cat(path, ".", below);
    }
  }
  return {};
}

}  // namespace

absl::Status parse_message(const Bytes& bytes, google::protobuf::Message& message) {
  // Not the same as an empty message: the client ended its side without one, or amid one.
  if (!bytes.Valid()) return absl::InvalidArgumentError("the call has no message");
  Bytes parsed = bytes;  // the same slices: a reader wants them mutable
  {
    grpc::ProtoBufferReader reader(&parsed);
    if (message.ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  }
  const Descriptor& type = *message.GetDescriptor();
  UnknownFieldSet fields;
  grpc::ProtoBufferReader reader(&parsed);
  if (fields.ParseFromZeroCopyStream(&reader)) {
    const std::string path = path_of_bad_text(fields, type);
    if (!path.empty()) return invalid_field(path, "must be UTF-8");
  }
  return absl::InvalidArgumentError(
      str_cat("the message is no ", type.full_name(), " in protobuf"));
}

Bytes to_bytes(const google::protobuf::Message& message) {
  Bytes bytes;
  grpc::ProtoBufferWriter writer(&bytes, grpc::kProtoBufferWriterMaxBufferLength,
                                 static_cast<int>(message.ByteSizeLong()));
  message.SerializeToZeroCopyStream(&writer);
  return bytes;
}

}  // namespace ragcache::gateway
