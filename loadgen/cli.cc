#include "loadgen/cli.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "common/config/command_line.h"
#include "loadgen/policy/policy_command.h"
#include "loadgen/record/record.h"

namespace ragcache::loadgen {
namespace {

int report(const absl::Status& status) { return ragcache::report("ragcache-loadgen", status); }

class Commands {
 public:
  explicit Commands(CLI::App& cli) : cli_(cli) {
    add_policy();
    add_record();
    cli_.require_subcommand(1);
  }

  int run() { return run_(); }

 private:
  void add_policy() {
    CLI::App* command = cli_.add_subcommand(
        "policy", "Replay the documents of a trace through the knowledge tree, without an engine");
    command->footer(
        "Each policy runs at each size, remembering what it knew of nodes that left the cache and\n"
        "forgetting it, where that differs. belady is told the future.\n\n"
        "Examples:\n"
        "  ragcache-loadgen policy --trace ragpulse/ --top-k 2\n"
        "  ragcache-loadgen policy --trace mmlu.jsonl --shuffle --seed 7 --json - --plots plots\n"
        "  ragcache-loadgen policy --trace nq.jsonl --policies adaptive,pgdsf --sizes 0.02,0.5");
    command
        ->add_option("--trace", policy_.trace,
                     "JSONL of {\"documents\": [{\"id\", \"tokens\"}]}, or RAGPulse's data folder")
        ->required();
    command->add_option("--top-k", policy_.top_k, "first documents of each request; 0: all")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    command->add_option("--requests", policy_.requests, "first requests; 0: all")
        ->capture_default_str();
    command->add_flag("--shuffle", policy_.shuffle, "requests in an order drawn from the seed");
    command->add_option("--seed", policy_.seed, "of that order")->capture_default_str();
    command->add_option("--policies", policy_.policies, "which, by commas")
        ->delimiter(',')
        ->capture_default_str();
    command
        ->add_option("--sizes", policy_.sizes,
                     "both tiers together, as shares of the working set, by commas")
        ->delimiter(',')
        ->capture_default_str();
    command->add_option("--device-share", policy_.device_share, "the device's part of the size")
        ->check(CLI::Range(0.001, 1.0))
        ->capture_default_str();
    command->add_option("--block-tokens", policy_.block_tokens, "tokens of a KV block")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    command->add_option("--bytes-per-token", policy_.bytes_per_token, "KV of a token")
        ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 30))
        ->capture_default_str();
    command
        ->add_option("--waiting", policy_.waiting,
                     "requests in the queue, which a policy that looks ahead is told of")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    command->add_option("--profile", policy_.profile,
                        "JSON of measured prefill times: cached_tokens, new_tokens, seconds");
    command->add_option("--json", policy_.json,
                        "write the results here; -: to standard output, instead of the table");
    command->add_option("--plots", policy_.plots,
                        "folder for a chart of the hit ratios, as SVG and PNG");
    command->callback([this] { run_ = [this] { return report(policy(policy_)); }; });
  }

  void add_record() {
    CLI::App* command = cli_.add_subcommand(
        "record", "Write down which documents an exact search finds for each question");
    command->footer(
        "Examples:\n"
        "  ragcache-loadgen record --corpus passages.jsonl.gz --corpus leads.json.gz \\\n"
        "    --questions mmlu=mmlu/test --exclude moral_scenarios --questions nq=nq_open \\\n"
        "    --embedding-model all-minilm-l6-v2 --model model.gguf --out traces\n"
        "  ragcache-loadgen policy --trace traces/mmlu.jsonl --shuffle");
    command
        ->add_option("--corpus", record_.corpora,
                     "documents as JSONL {id, title, text} or JSON {title: {extract}}; repeat")
        ->required();
    command
        ->add_option("--questions", record_.questions,
                     "NAME=PATH: a folder of MMLU's CSV files, or JSONL with \"question\"; repeat")
        ->required();
    command->add_option("--exclude", record_.exclude,
                        "leave out question files whose name contains this");
    command
        ->add_option("--embedding-model", record_.embedding_model, "folder of the sentence encoder")
        ->required();
    command->add_option("--model", record_.model, "language model whose tokens count")->required();
    command->add_option("--out", record_.out, "folder; the traces are NAME.jsonl in it")
        ->required();
    command->add_option("--top-k", record_.top_k, "documents of a question")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command
        ->add_option("--doc-tokens", record_.doc_tokens,
                     "join neighbours of one title up to so many tokens")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    command
        ->add_option("--corpus-documents", record_.corpus_documents,
                     "draw so many of the joined documents; 0: all")
        ->capture_default_str();
    command
        ->add_option("--max-questions", record_.max_questions,
                     "draw so many of each set of questions; 0: all")
        ->capture_default_str();
    command->add_option("--seed", record_.seed, "of what is drawn")->capture_default_str();
    command->callback([this] { run_ = [this] { return report(record(record_)); }; });
  }

  CLI::App& cli_;
  std::function<int()> run_;
  PolicyCommand policy_;
  RecordCommand record_;
};

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App cli("Loads and measures RAGCache", "ragcache-loadgen");
  cli.footer("`ragcache-loadgen COMMAND --help` tells more.");
  Commands commands(cli);
  if (const std::optional<int> done = parse_command_line(cli, argc, argv)) return *done;
  return commands.run();
}

}  // namespace ragcache::loadgen
