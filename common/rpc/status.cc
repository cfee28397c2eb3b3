#include "common/rpc/status.h"

#include <string>

namespace ragcache {

// Both enumerations are the canonical codes of google.rpc.Code, number for number.
grpc::Status to_grpc_status(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status from_grpc_status(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace ragcache
