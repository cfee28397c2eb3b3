#pragma once

#include "common/process/program.h"

namespace ragcache::retrieval {

// The executable ragcache-retrieval.
Program retrieval_program();

}  // namespace ragcache::retrieval
