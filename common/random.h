#pragma once

#include <cstdint>

namespace ragcache {

// 64 bits that nobody can guess. Any thread.
uint64_t random_bits();

}  // namespace ragcache
