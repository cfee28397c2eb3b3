#pragma once

#include "common/process/program.h"

namespace ragcache::controller {

// The executable ragcache-controller.
Program controller_program();

}  // namespace ragcache::controller
