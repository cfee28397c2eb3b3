#include "services/ragcache/cli.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "common/config/command_line.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/serve.h"

namespace ragcache {
namespace {

constexpr const char* kVersion = "0.1.0";

int report(const absl::Status& status) { return ragcache::report("ragcache", status); }

// A command's flags and what runs it.
class Commands {
 public:
  explicit Commands(CLI::App& cli) : cli_(cli) {
    add_serve();
    add_ingest();
    add_ask();
    add_status();
    add_cache();
    cli_.require_subcommand(1);
  }

  int run() { return run_(); }

 private:
  void add_serve() {
    CLI::App* command = cli_.add_subcommand(
        "serve", "Run gateway, controller, retrieval and worker in one process");
    command->footer(
        "Each option can also be set by environment (RAGCACHE_ and its name in capitals) or in a\n"
        "YAML file; a flag wins over the environment, that over the file.\n\n"
        "Examples:\n"
        "  ragcache serve --model model.gguf --embedding-model all-minilm-l6-v2\n"
        "  ragcache serve --config ragcache.yaml --listen 0.0.0.0:8080\n"
        "  ragcache serve --config ragcache.yaml --print-config");
    serve_flags_.emplace(*command, serve_.table());
    command->callback([this] {
      run_ = [this] {
        if (const std::optional<int> done = serve_flags_->load()) return *done;
        absl::Status status = serve_.run();
        if (status.ok()) return kExitDone;
        std::fprintf(stderr, "ragcache serve: %s\n", std::string(status.message()).c_str());
        // What stops a server from starting is for its operator to put right.
        return kExitUsage;
      };
    });
  }

  void add_ingest() {
    CLI::App* command = cli_.add_subcommand("ingest", "Add documents from files and folders");
    command->footer(
        "Files ending in .jsonl have a document a line: {\"id\": …, \"title\": …, \"text\": …,\n"
        "\"metadata\": {…}}. Files ending in .txt, .md and .html are a document each, whose id is\n"
        "the path below the folder. All may be compressed, with .gz behind. A document with a\n"
        "known id is replaced, an unchanged one skipped, so that a broken-off ingest is simply\n"
        "run again.\n\n"
        "Examples:\n"
        "  ragcache ingest documents.jsonl.gz\n"
        "  ragcache ingest --corpus manuals --recursive --keep-going manuals/\n"
        "  curl https://example.org/documents.jsonl | ragcache ingest -");
    command
        ->add_option("paths", ingest_.paths, "files and folders; - reads JSONL from standard input")
        ->required();
    command->add_option("--corpus", ingest_.corpus, "which corpus they go to, instead of default");
    command->add_flag("--recursive", ingest_.recursive, "look into folders in folders too");
    command->add_option("--format", ingest_.format, "what the files are, instead of by their names")
        ->check(CLI::IsMember({"auto", "jsonl", "txt", "md", "html"}))
        ->capture_default_str();
    command->add_flag("--keep-going", ingest_.keep_going,
                      "print what was refused, with file and line, and go on");
    add_api_key(command, ingest_.api_key);
    add_common(command, ingest_.server, ingest_.json);
    command->callback([this] { run_ = [this] { return report(ingest(ingest_)); }; });
  }

  void add_ask() {
    CLI::App* command = cli_.add_subcommand("ask", "Ask a question about the documents");
    command->footer(
        "Examples:\n"
        "  ragcache ask \"How do aardvarks find termites?\"\n"
        "  ragcache ask --top-k 3 --max-tokens 64 --json \"What is an abacus?\"\n"
        "  ragcache ask --document doc-7 --document doc-2 \"What do they have in common?\"\n"
        "  ragcache ask --corpus wiki --filter '{\"year\": {\"gte\": 1990}}' \"What happened?\"");
    command->add_option("question", ask_.question, "the question")->required();
    command->add_option("--top-k", ask_.top_k, "documents to search for")
        ->check(CLI::PositiveNumber);
    command->add_option("--document", ask_.documents,
                        "use this document instead of searching; repeat for more, in prompt order");
    command->add_option("--corpus", ask_.corpus, "search this corpus");
    command->add_option("--filter", ask_.filter,
                        "search only documents whose metadata meet this, as JSON");
    command->add_flag("--no-rag", ask_.no_rag, "answer without documents");
    command->add_option("--max-tokens", ask_.max_tokens, "longest answer")
        ->check(CLI::PositiveNumber);
    command->add_option("--temperature", ask_.temperature, "0 always takes the likeliest token");
    command->add_option("--seed", ask_.seed, "of the draws at a temperature above 0");
    command->add_option("--system", ask_.system, "system message");
    add_api_key(command, ask_.api_key);
    add_common(command, ask_.server, ask_.json);
    command->callback([this] { run_ = [this] { return report(ask(ask_)); }; });
  }

  void add_status() {
    CLI::App* command = cli_.add_subcommand("status", "Is the service ready, and if not, why");
    command->footer("Examples:\n  ragcache status\n  ragcache status --json");
    add_common(command, server_, json_);
    command->callback([this] { run_ = [this] { return report(show_status(server_, json_)); }; });
  }

  void add_cache() {
    CLI::App* command = cli_.add_subcommand("cache", "Look at the KV cache, fill it or empty it");
    command->footer(
        "Examples:\n"
        "  ragcache cache stats\n"
        "  ragcache cache tree\n"
        "  ragcache cache pin --document handbook --document prices\n\n"
        "`ragcache cache COMMAND --help` tells more.");
    command->require_subcommand(1);

    CLI::App* stats = command->add_subcommand("stats", "Blocks, hits and evictions of both tiers");
    stats->footer("Examples:\n  ragcache cache stats\n  ragcache cache stats --json");
    add_cache_common(stats, cache_);
    stats->callback([this] { run_ = [this] { return report(cache_stats(cache_)); }; });

    CLI::App* clear =
        command->add_subcommand("clear", "Free all that is neither pinned nor in use");
    clear->footer("Examples:\n  ragcache cache clear");
    add_cache_common(clear, cache_);
    clear->callback([this] { run_ = [this] { return report(cache_clear(cache_)); }; });

    CLI::App* tree = command->add_subcommand("tree", "Show the knowledge tree");
    tree->footer(
        "As text, a node a line below its parent: document, tokens, tiers (D device, H host, d "
        "and\n"
        "h on its way there), users, whether it is pinned, priority.\n\n"
        "Examples:\n"
        "  ragcache cache tree --max-nodes 100\n"
        "  ragcache cache tree --format dot | dot -Tsvg > tree.svg");
    tree->add_option("--format", cache_tree_.format, "how it is shown")
        ->check(CLI::IsMember({"text", "json", "dot"}))
        ->capture_default_str();
    tree->add_option("--max-nodes", cache_tree_.max_nodes,
                     "show at most so many, the upper ones first; default 10000");
    add_cache_common(tree, cache_tree_);
    tree->callback([this] { run_ = [this] { return report(cache_tree(cache_tree_)); }; });

    add_cache_paths(command, "warm", "Compute the KV of documents before anybody asks",
                    "What is cached already is not computed again.");
    add_cache_paths(
        command, "pin", "Compute the KV of documents and keep it",
        "A pinned path is not cleared, and evicted only when nothing else is left to make room:\n"
        "pin less than the memory holds.");
    add_cache_paths(command, "unpin", "Let the KV of pinned documents go again",
                    "It stays cached until its turn to be evicted comes.");
  }

  void add_cache_paths(CLI::App* cache, const std::string& action, const std::string& summary,
                       const std::string& note) {
    CLI::App* command = cache->add_subcommand(action, summary);
    const std::string call = "  ragcache cache " + action;
    command->footer(
        "A path is a list of documents in the order in which they stand in a prompt: another "
        "order\n"
        "is another path.\n" +
        note + "\n\nExamples:\n" + call + " --document handbook --document prices\n" + call +
        " --corpus wiki --document zebra\n" + call +
        " --file paths.jsonl     # [\"handbook\", \"prices\"] a line");
    CLI::Option* document = command->add_option("--document", cache_paths_.documents,
                                                "a document; repeat for more, in prompt order");
    command
        ->add_option("--file", cache_paths_.file,
                     "paths instead, a JSON array of ids a line; - reads standard input")
        ->excludes(document);
    command->add_option("--corpus", cache_paths_.corpus, "the documents' corpus");
    command->add_option("--tenant", cache_paths_.tenant,
                        "whose KV it is, where tenants share none");
    command->add_option("--system", cache_paths_.system,
                        "the system message before them, instead of the service's own");
    add_cache_common(command, cache_paths_);
    command->callback([this, action] {
      run_ = [this, action] {
        cache_paths_.action = action;
        return report(cache_paths(cache_paths_));
      };
    });
  }

  static void add_cache_common(CLI::App* command, CacheCommand& cache) {
    command->add_option("--admin-key", cache.admin_key, "if the gateway asks for one")
        ->envname("RAGCACHE_ADMIN_KEY");
    add_common(command, cache.server, cache.json);
  }

  static void add_api_key(CLI::App* command, std::string& api_key) {
    command->add_option("--api-key", api_key, "if the gateway asks for one")
        ->envname("RAGCACHE_API_KEY");
  }

  static void add_common(CLI::App* command, std::string& server, bool& json) {
    command->add_option("--server", server, "URL of the gateway")
        ->envname("RAGCACHE_SERVER")
        ->capture_default_str();
    command->add_flag("--json", json, "print one JSON object");
  }

  CLI::App& cli_;
  std::function<int()> run_;

  Serve serve_;
  std::optional<OptionFlags> serve_flags_;

  IngestCommand ingest_;
  AskCommand ask_;
  CacheCommand cache_;
  CacheTreeCommand cache_tree_;
  CachePathsCommand cache_paths_;
  std::string server_ = kDefaultServer;
  bool json_ = false;
};

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App cli("RAGCache: retrieval-augmented generation that keeps documents' KV", "ragcache");
  cli.set_version_flag("--version", kVersion);
  cli.footer(
      "Examples:\n"
      "  ragcache serve --model model.gguf --embedding-model all-minilm-l6-v2\n"
      "  ragcache ingest documents.jsonl\n"
      "  ragcache ask \"How do aardvarks find termites?\"\n\n"
      "`ragcache COMMAND --help` tells more.");
  Commands commands(cli);
  if (const std::optional<int> done = parse_command_line(cli, argc, argv)) return *done;
  return commands.run();
}

}  // namespace ragcache
