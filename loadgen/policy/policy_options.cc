#include <CLI/CLI.hpp>
#include <memory>

#include "loadgen/policy/policy_command.h"

namespace ragcache::loadgen {

void add_policy(CLI::App& cli, std::function<absl::Status()>& chosen) {
  auto options = std::make_shared<PolicyCommand>();
  CLI::App* command = cli.add_subcommand(
      "policy", "Replay the documents of a trace through the knowledge tree, without an engine");
  command->footer(
      "Each policy runs at each size, remembering what it knew of nodes that left the cache and\n"
      "forgetting it, where that differs. belady is told the future.\n\n"
      "Examples:\n"
      "  ragcache-loadgen policy --trace ragpulse/ --top-k 2\n"
      "  ragcache-loadgen policy --trace mmlu.jsonl --shuffle --seed 7 --json - --plots plots\n"
      "  ragcache-loadgen policy --trace nq.jsonl --policies adaptive,pgdsf --sizes 0.02,0.5");
  command
      ->add_option("--trace", options->trace,
                   "JSONL of {\"documents\": [{\"id\", \"tokens\"}]}, or RAGPulse's data folder")
      ->required();
  command->add_option("--top-k", options->top_k, "first documents of each request; 0: all")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--requests", options->requests, "first requests; 0: all")
      ->capture_default_str();
  command->add_flag("--shuffle", options->shuffle, "requests in an order drawn from the seed");
  command->add_option("--seed", options->seed, "of that order")->capture_default_str();
  command->add_option("--policies", options->policies, "which, by commas")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--sizes", options->sizes,
                   "both tiers together, as shares of the working set, by commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--device-share", options->device_share, "the device's part of the size")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  command->add_option("--block-tokens", options->block_tokens, "tokens of a KV block")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--bytes-per-token", options->bytes_per_token, "KV of a token")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--waiting", options->waiting,
                   "requests in the queue, which a policy that looks ahead is told of")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--profile", options->profile,
                      "JSON of measured prefill times: cached_tokens, new_tokens, seconds");
  command->add_option("--json", options->json,
                      "write the results here; -: to standard output, instead of the table");
  command->add_option("--plots", options->plots,
                      "folder for a chart of the hit ratios, as SVG and PNG");
  command->callback([options, &chosen] { chosen = [options] { return policy(*options); }; });
}

}  // namespace ragcache::loadgen
