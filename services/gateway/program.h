#pragma once

#include "common/process/program.h"

namespace ragcache::gateway {

// The executable ragcache-gateway.
Program gateway_program();

}  // namespace ragcache::gateway
