#include "common/file_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace ragcache {

void raise_file_limit(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  }
  // Linux' table of them doubles when it is full, and each time a process of several threads waits
  // for all processors (expand_fdtable's synchronize_rcu): tens of milliseconds under load. A high
  // number, taken once, makes it large at the start.
  const auto last = static_cast<int>(std::min<rlim_t>(wanted, limit.rlim_cur)) - 1;
  if (const int taken = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, last); taken >= 0) close(taken);
}

}  // namespace ragcache
