#pragma once

#include <cstddef>

namespace ragcache {

// Makes room for `wanted` open files, or for as many as the process may have: the soft limit is
// often 1,024, the hard one far above. What is missing is met as a failure where it is needed.
void raise_file_limit(size_t wanted);

}  // namespace ragcache
