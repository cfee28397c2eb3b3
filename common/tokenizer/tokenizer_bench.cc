// Encoding speed on the demo's own texts, one core.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/check.h"
#include "common/strings.h"
#include "common/tokenizer/testing.h"
#include "common/tokenizer/word_piece.h"

namespace ragcache {
namespace {

std::string demo_text() {
  constexpr size_t kBytesMax = 4 << 20;
  std::ifstream file(str_cat(std::getenv("RAG_DEPS_DIR"), "/data/wiki_summaries.json"));
  RAG_CHECK(file.is_open());
  const nlohmann::json summaries = nlohmann::json::parse(file);
  std::string text;
  for (const auto& [title, summary] : summaries.items()) {
    text += str_cat(title, "\n", summary.at("extract").get_ref<const std::string&>(), "\n\n");
    if (text.size() > kBytesMax) break;
  }
  return text;
}

void BytePairEncode(benchmark::State& state) {
  const auto tokenizer = demo_tokenizer();
  const std::string text = demo_text();
  size_t n_tokens = 0;
  for (auto _ : state) n_tokens = tokenizer->encode(text).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["bytes_per_token"] = static_cast<double>(text.size()) / n_tokens;
}
BENCHMARK(BytePairEncode)->Unit(benchmark::kMillisecond);

void WordPieceEncode(benchmark::State& state) {
  const auto tokenizer = WordPieceTokenizer::load(
      str_cat(std::getenv("RAG_DEPS_DIR"), "/models/all-minilm-l6-v2/vocab.txt"));
  RAG_CHECK(tokenizer.ok());
  const std::string text = demo_text();
  for (auto _ : state) benchmark::DoNotOptimize((*tokenizer)->encode(text, text.size()));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(WordPieceEncode)->Unit(benchmark::kMillisecond);

void LoadTokenizer(benchmark::State& state) {
  const auto file = GgufFile::open(
      str_cat(std::getenv("RAG_DEPS_DIR"), "/models/SmolLM2-135M-Instruct.Q4_1.gguf"));
  RAG_CHECK(file.ok());
  for (auto _ : state) benchmark::DoNotOptimize(load_gguf_tokenizer(**file));
}
BENCHMARK(LoadTokenizer)->Unit(benchmark::kMillisecond);

void BytePairEncodeOneHugeWord(benchmark::State& state) {
  const auto tokenizer = demo_tokenizer();
  const std::string word(10 << 20, 'a');
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(word));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * word.size()));
}
BENCHMARK(BytePairEncodeOneHugeWord)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace ragcache

BENCHMARK_MAIN();
