#pragma once

#include <cstddef>

namespace ragcache {

// Raises the process's limit of open files to `wanted`, or to what it may have: the soft limit is
// often 1,024, the hard one far above. What is missing is met as a failure where it is needed.
void raise_file_limit(size_t wanted);

}  // namespace ragcache
