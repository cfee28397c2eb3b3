#pragma once

namespace ragcache {

// The `ragcache` program: parses the command line and runs one command. Returns the exit code:
// 0 done, 1 the command failed, 2 the command line or the configuration is wrong.
int run_cli(int argc, char** argv);

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

}  // namespace ragcache
