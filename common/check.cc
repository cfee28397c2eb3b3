#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace ragcache {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace ragcache
