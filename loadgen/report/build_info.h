#pragma once

namespace ragcache::loadgen {

// How this program was built. Defined in a file that every build writes (cmake/build_info.cmake).
struct BuildInfo {
  const char* commit;  // "unknown" outside of git
  bool dirty;
  const char* build;
  const char* compiler;
};
extern const BuildInfo kBuildInfo;

}  // namespace ragcache::loadgen
