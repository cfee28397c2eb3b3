#pragma once

namespace ragcache::loadgen {

// The `ragcache-loadgen` program: parses the command line and runs one command. Returns the exit
// status (common/config/command_line.h).
int run_cli(int argc, char** argv);

}  // namespace ragcache::loadgen
