#include <CLI/CLI.hpp>
#include <memory>

#include "loadgen/run/load_options.h"
#include "loadgen/run/run_command.h"
#include "loadgen/run/workload_options.h"

namespace ragcache::loadgen {

void add_run(CLI::App& cli, std::function<absl::Status()>& chosen) {
  auto options = std::make_shared<RunCommand>();
  CLI::App* command =
      cli.add_subcommand("run", "Send a workload to a server and measure how it answers");
  command->footer(
      "Requests are sent at their times, whatever became of others; latency counts from there.\n"
      "A load that ends early, by Ctrl-C or because the server fails, still gives its reports; "
      "the\n"
      "exit status tells.\n\n"
      "Examples:\n"
      "  ragcache-loadgen run --endpoint http://127.0.0.1:8080 --ingest --tokenizer model.gguf \\\n"
      "    --workload mmlu --data mmlu/test --corpus passages.jsonl.gz --doc-tokens 700 \\\n"
      "    --corpus-documents 300 --warm-up 300 --requests 600 --rate 2 --json run.json\n"
      "  ragcache-loadgen run --endpoint grpc://127.0.0.1:8081 --search-endpoint \\\n"
      "    http://127.0.0.1:8080 --ingest --tokenizer model.gguf --workload zipf --report "
      "run.html\n"
      "  ragcache-loadgen run --endpoint http://127.0.0.1:8000/v1 --model llama --retrieval before "
      "\\\n"
      "    --search-endpoint http://127.0.0.1:8080 --tokenizer model.gguf --workload squad \\\n"
      "    --data dev-v1.1.json --plots plots\n"
      "  ragcache-loadgen run --endpoint http://127.0.0.1:8080 --ingest --tokenizer model.gguf \\\n"
      "    --workload ragpulse --data ragpulse --speedup 10");
  const auto add = [command](const char* name, auto& value, const char* text) {
    return command->add_option(name, value, text)->capture_default_str();
  };
  add("--endpoint", options->endpoint.url,
      "http://host:port of an OpenAI-compatible server, or grpc://host:port of RAGCache")
      ->required();
  add("--api", options->api,
      "openai leaves RAGCache's own members out of requests; default: openai with --retrieval "
      "before, else ragcache")
      ->check(CLI::IsMember({"ragcache", "openai"}));
  add("--model", options->endpoint.model, "which one to ask for");
  add("--api-key", options->endpoint.api_key, "sent with every request");
  add("--extra", options->endpoint.extra,
      "JSON object whose members go into every request, such as '{\"ignore_eos\": true}'");
  add("--retrieval", options->retrieval,
      "server: it finds documents; named: it is told their ids; before: it is given their text, "
      "found at --search-endpoint; default: server, or named where the workload names documents")
      ->check(CLI::IsMember({"server", "named", "before"}));
  add("--top-k", options->top_k, "documents to find for a request; zipf: that it names")
      ->check(CLI::Range(1, 100));
  add("--search-endpoint", options->search_endpoint,
      "http://host:port of RAGCache, which ingests and finds documents; default: the endpoint");
  command->add_flag("--ingest", options->ingest, "add the workload's documents first");
  add("--requests", options->requests, "how many count; 0: all of the workload");
  add("--warm-up", options->warm_up, "requests sent before those, which do not count");
  add("--seed", options->seed, "of the arrivals and of what is drawn");
  add("--tokenizer", options->tokenizer, "language model, GGUF or folder, whose tokens count")
      ->required()
      ->group("Workload");
  add_workload_options(*command, options->workload);
  command
      ->add_option("--rate", options->rate,
                   "poisson, bursts: requests a second, in the mean; default: 1")
      ->check(CLI::Range(1e-3, 1e6))
      ->group("Arrivals");
  command
      ->add_option("--speedup", options->speedup, "recorded: times are divided by this; default: 1")
      ->check(CLI::Range(1e-3, 1e6))
      ->group("Arrivals");
  add_arrival_options(*command, options->arrivals);
  add_load_options(*command, options->load);
  add("--json", options->json,
      "write the results here; -: to standard output, instead of the table");
  add("--plots", options->plots, "folder for charts of latencies, as SVG and PNG");
  add("--report", options->report, "write an HTML page here");
  command->get_option("--arrivals")
      ->description("when requests are sent; default: recorded if the workload is, else poisson");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ragcache::loadgen
