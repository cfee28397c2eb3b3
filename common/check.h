#pragma once

// RAG_CHECK aborts on a broken invariant of our own. Bad input, network and dependency faults are
// absl::Status, never a check.

namespace ragcache {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace ragcache

#define RAG_CHECK(condition)                                    \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::ragcache::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
