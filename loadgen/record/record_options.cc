#include <CLI/CLI.hpp>
#include <memory>

#include "loadgen/record/record.h"

namespace ragcache::loadgen {

void add_record(CLI::App& cli, std::function<absl::Status()>& chosen) {
  auto options = std::make_shared<RecordCommand>();
  CLI::App* command = cli.add_subcommand(
      "record", "Write down which documents an exact search finds for each question");
  command->footer(
      "Examples:\n"
      "  ragcache-loadgen record --corpus passages.jsonl.gz --corpus leads.json.gz \\\n"
      "    --questions mmlu=mmlu/test --exclude moral_scenarios --questions nq=nq_open \\\n"
      "    --embedding-model all-minilm-l6-v2 --model model.gguf --out traces\n"
      "  ragcache-loadgen policy --trace traces/mmlu.jsonl --shuffle");
  command
      ->add_option("--corpus", options->corpora,
                   "documents as JSONL {id, title, text} or JSON {title: {extract}}; repeat")
      ->required();
  command
      ->add_option("--questions", options->questions,
                   "NAME=PATH: a folder of MMLU's CSV files, or JSONL with \"question\"; repeat")
      ->required();
  command->add_option("--exclude", options->exclude,
                      "leave out question files whose name contains this");
  command
      ->add_option("--embedding-model", options->embedding_model, "folder of the sentence encoder")
      ->required();
  command->add_option("--model", options->model, "language model whose tokens count")->required();
  command->add_option("--out", options->out, "folder; the traces are NAME.jsonl in it")->required();
  command->add_option("--top-k", options->top_k, "documents of a question")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--doc-tokens", options->doc_tokens,
                   "join neighbours of one title up to so many tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--corpus-documents", options->corpus_documents,
                   "draw so many of the joined documents; 0: all")
      ->capture_default_str();
  command
      ->add_option("--max-questions", options->max_questions,
                   "draw so many of each set of questions; 0: all")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of what is drawn")->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return record(*options); }; });
}

}  // namespace ragcache::loadgen
