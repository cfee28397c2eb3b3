#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace ragcache {

// The one place where gRPC codes are made and read.
grpc::Status to_grpc_status(const absl::Status& status);
absl::Status from_grpc_status(const grpc::Status& status);

}  // namespace ragcache
