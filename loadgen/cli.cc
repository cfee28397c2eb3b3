#include "loadgen/cli.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>

#include "common/config/command_line.h"
#include "loadgen/compare/compare_command.h"
#include "loadgen/peers/peers_command.h"
#include "loadgen/policy/policy_command.h"
#include "loadgen/record/record.h"
#include "loadgen/run/run_command.h"

namespace ragcache::loadgen {

int run_cli(int argc, char** argv) {
  CLI::App cli("Loads and measures RAGCache", "ragcache-loadgen");
  cli.footer("`ragcache-loadgen COMMAND --help` tells more.");
  cli.require_subcommand(1);
  std::function<absl::Status()> chosen;
  add_run(cli, chosen);
  add_compare(cli, chosen);
  add_peers(cli, chosen);
  add_policy(cli, chosen);
  add_record(cli, chosen);
  if (const std::optional<int> done = parse_command_line(cli, argc, argv)) return *done;
  return report("ragcache-loadgen", chosen());
}

}  // namespace ragcache::loadgen
