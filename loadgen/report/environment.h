#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ragcache::loadgen {

// What a measurement was made with. "unknown" where the machine does not tell.
struct Environment {
  std::string commit;  // of this program, as it was built
  bool dirty = false;  // the tree had other changes
  std::string build;   // CMake's build type, sanitizers
  std::string compiler;
  std::string cpu;
  int cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::string kernel;
  std::string time;     // now, UTC
  std::string command;  // as it was called
};

Environment environment();

// {"commit","dirty","build","compiler","cpu","cores","memory_bytes","kernel","time","command"}
nlohmann::json to_json(const Environment& environment);

// Name and value of each, for people; as lines of text.
std::vector<std::pair<std::string, std::string>> to_rows(const Environment& environment);
std::string to_text(const Environment& environment);

// The arguments as one would type them. The values of options whose name ends in "key" are not
// told.
std::string command_line(const std::vector<std::string>& arguments);

}  // namespace ragcache::loadgen
