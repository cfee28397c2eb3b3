#include "loadgen/run/workload_options.h"

#include <CLI/CLI.hpp>

namespace ragcache::loadgen {
namespace {

constexpr uint32_t kTokensMax = 1 << 20;
constexpr uint32_t kDocumentsMax = 1 << 20;

}  // namespace

void add_workload_options(CLI::App& command, WorkloadOptions& options) {
  const auto add = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str()->group("Workload");
  };
  add("--workload", options.name, "what is asked")
      ->required()
      ->check(CLI::IsMember({"mmlu", "nq", "squad", "ragpulse", "mooncake", "azure", "zipf"}));
  add("--data", options.data, "the workload's public file or folder; zipf has none");
  add("--corpus", options.corpus.paths,
      "mmlu, nq: documents as JSONL {id, title, text}, SQuAD or JSON {title: {extract}}; repeat");
  add("--doc-tokens", options.corpus.doc_tokens,
      "join neighbours of one title up to so many tokens; 0: leave them")
      ->check(CLI::Range(0u, kTokensMax));
  add("--min-doc-tokens", options.corpus.min_doc_tokens, "leave out documents that are shorter")
      ->check(CLI::Range(0u, kTokensMax));
  add("--corpus-documents", options.corpus.documents,
      "draw so many of the documents by the seed; 0: all");
  add("--exclude", options.exclude, "mmlu, nq: no question files whose name contains this");
  add("--max-tokens", options.max_tokens,
      "of an answer, at most; 0: as recorded, else 1 for mmlu and 16 for others")
      ->check(CLI::Range(0u, kTokensMax));
  add("--max-prompt-tokens", options.max_prompt_tokens,
      "leave out recorded requests with longer prompts; 0: none")
      ->check(CLI::Range(0u, kTokensMax));
  add("--zipf-s", options.zipf.s, "zipf: rank r is wanted in proportion to 1 / r^s")
      ->check(CLI::Range(0.0, 10.0));
  add("--zipf-documents", options.zipf.documents, "zipf: how many there are")
      ->check(CLI::Range(1u, kDocumentsMax));
  add("--zipf-min-tokens", options.zipf.min_tokens, "zipf: of the shortest document")
      ->check(CLI::Range(1u, kTokensMax));
  add("--zipf-max-tokens", options.zipf.max_tokens, "zipf: of the longest document")
      ->check(CLI::Range(1u, kTokensMax));
  add("--zipf-question-tokens", options.zipf.question_tokens, "zipf: of a question")
      ->check(CLI::Range(1u, kTokensMax));
  command
      .add_flag("!--zipf-uniform-lengths", options.zipf.log_normal,
                "zipf: lengths are drawn evenly, not log-normally")
      ->group("Workload");
}

void add_arrival_options(CLI::App& command, ArrivalOptions& options) {
  const auto add = [&command](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->capture_default_str()->group("Arrivals");
  };
  add("--arrivals", options.process, "when requests are sent")
      ->check(CLI::IsMember({"poisson", "bursts", "recorded"}));
  add("--burst-share", options.burst_share, "bursts: the part of the time that they take")
      ->check(CLI::Range(0.01, 1.0));
  add("--burst-period", options.burst_period_s,
      "bursts: mean seconds of a burst and the silence behind it")
      ->check(CLI::Range(0.1, 86'400.0));
}

}  // namespace ragcache::loadgen
