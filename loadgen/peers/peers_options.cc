#include <CLI/CLI.hpp>
#include <memory>

#include "loadgen/peers/peers_command.h"

namespace ragcache::loadgen {

void add_peers(CLI::App& cli, std::function<absl::Status()>& chosen) {
  auto options = std::make_shared<PeersCommand>();
  CLI::App* command = cli.add_subcommand(
      "peers", "Compare RAGCache with other servers on the same model file, prompts and arrivals");
  command->footer(
      "Prompts are token ids, with the documents that an exact search finds; each server is given\n"
      "as much memory for KV as RAGCache's two tiers have.\n\n"
      "Examples:\n"
      "  tests/peers/compare.py --fetch\n"
      "  ragcache-loadgen peers --model model.gguf --embedding-model all-minilm-l6-v2 \\\n"
      "    --workload mmlu --data mmlu/test --corpus passages.jsonl.gz --doc-tokens 700 \\\n"
      "    --min-doc-tokens 500 --corpus-documents 300 --rates 0.6 \\\n"
      "    --llama-server .deps/peers/llama.cpp/build/bin/llama-server\n"
      "  ragcache-loadgen peers --engines ragcache --url vllm=http://127.0.0.1:8000 \\\n"
      "    --url-model vllm=HuggingFaceTB/SmolLM2-135M-Instruct …");
  add_experiment_options(*command, options->experiment);
  const auto add = [command](const char* name, auto& value, const char* text) {
    return command->add_option(name, value, text)->capture_default_str();
  };
  add("--engines", options->engines,
      "ragcache, llama.cpp, llama.cpp-slots (its idle slots keep their KV), openvino, openvino-f16 "
      "(its KV in halves); by commas; "
      "names of --url: where they stand, else they are the last")
      ->delimiter(',');
  add("--baseline", options->baseline,
      "the engine whose capacity the rates are shares of; default: the last of --engines");
  add("--llama-server", options->llama_server, "llama.cpp's server; default: looked up in PATH");
  add("--openvino-server", options->openvino_server,
      "the script that serves OpenVINO GenAI; default: openvino_server.py beside this program");
  add("--openvino-path", options->openvino_path,
      "folder of the package openvino-genai; default: where Python looks");
  add("--url", options->url.urls,
      "NAME=http://host:port of a server that runs already; it joins the engines; repeat");
  add("--url-model", options->url.models, "NAME=MODEL that it is asked for; default: ragcache");
  add("--url-key-env", options->url.key_variables,
      "NAME=VARIABLE of the environment that holds its API key; default: no key");
  add("--url-extra", options->url.extras,
      "NAME=JSON object whose members go into its requests; default: {\"ignore_eos\": true}");
  command->callback([options, &chosen] { chosen = [options] { return peers(*options); }; });
}

}  // namespace ragcache::loadgen
