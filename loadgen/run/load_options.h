#pragma once

#include "loadgen/load/load.h"

namespace CLI {
class App;
}

namespace ragcache::loadgen {

// Options of every command that sends a load: all of `options` but whom it tells.
void add_load_options(CLI::App& command, LoadOptions& options);

}  // namespace ragcache::loadgen
