#pragma once

#include "common/process/program.h"

namespace ragcache::worker {

// The executable ragcache-worker.
Program worker_program();

}  // namespace ragcache::worker
