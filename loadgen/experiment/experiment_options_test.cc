#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "loadgen/experiment/experiment_command.h"

namespace ragcache::loadgen {
namespace {

TEST(ExperimentOptions, TakesTheLimitsOfItsLoads) {
  CLI::App app;
  ExperimentCommand command;
  add_experiment_options(app, command);
  app.parse(
      "--model m --embedding-model e --workload zipf --timeout 3 --max-in-flight 4 "
      "--max-failures 0");
  EXPECT_EQ(command.load.timeout_s, 3);
  EXPECT_EQ(command.load.max_in_flight, 4u);
  EXPECT_EQ(command.load.max_failures_in_row, 0u);
}

}  // namespace
}  // namespace ragcache::loadgen
