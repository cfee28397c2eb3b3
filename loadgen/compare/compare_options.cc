#include <CLI/CLI.hpp>
#include <memory>

#include "loadgen/compare/compare_command.h"

namespace ragcache::loadgen {

void add_compare(CLI::App& cli, std::function<absl::Status()>& chosen) {
  auto options = std::make_shared<CompareCommand>();
  CLI::App* command = cli.add_subcommand(
      "compare", "Start the engine in several modes, by turns, and compare them under one load");
  command->footer(
      "Modes: none (no reuse), gpu-lru (prefixes on the device alone), ragcache (all of it),\n"
      "ragcache-no-host, and ragcache-POLICY for another eviction policy. The first is the "
      "baseline:\n"
      "rates are shares of what it sustains. All get the same requests at the same times, and the\n"
      "same device tier. It takes requests / rate for each mode and rate, and a warm-up.\n\n"
      "Examples:\n"
      "  ragcache-loadgen compare --model model.gguf --embedding-model all-minilm-l6-v2 \\\n"
      "    --workload mmlu --data mmlu/test --corpus passages.jsonl.gz --doc-tokens 700 \\\n"
      "    --min-doc-tokens 500 --corpus-documents 300 --json compare.json --report compare.html\n"
      "  ragcache-loadgen compare --model model.gguf --embedding-model all-minilm-l6-v2 \\\n"
      "    --workload zipf --modes none,ragcache,ragcache-pgdsf --rates 0.9 --requests 100");
  add_experiment_options(*command, options->experiment);
  command->add_option("--modes", options->modes, "which, by commas; the first is the baseline")
      ->delimiter(',')
      ->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return compare(*options); }; });
}

}  // namespace ragcache::loadgen
