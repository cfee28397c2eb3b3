// Ids against those of PyPI tokenizers: tests/golden/tokenizers.jsonl, and the file that
// RAG_TOKENIZER_GOLDEN names, if set (tests/reference/check_tokenizers.sh makes one).

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "common/tokenizer/testing.h"
#include "common/tokenizer/word_piece.h"

namespace ragcache {
namespace {

constexpr size_t kWordPieceTokensMax = 256;
constexpr int kShownMismatchesMax = 5;

struct GoldenLine {
  std::string text;
  std::vector<TokenId> byte_pair_ids;
  std::vector<TokenId> word_piece_ids;
};

std::vector<GoldenLine> golden_lines() {
  std::vector<std::string> paths = {
      str_cat(std::getenv("RAG_SOURCE_DIR"), "/tests/golden/tokenizers.jsonl")};
  if (const char* path = std::getenv("RAG_TOKENIZER_GOLDEN")) paths.emplace_back(path);
  std::vector<GoldenLine> lines;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    EXPECT_TRUE(file.is_open()) << path;
    for (std::string line; std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      lines.push_back({row[0], row[1], row[2]});
    }
  }
  return lines;
}

void expect_equal_ids(auto encode, std::vector<TokenId> GoldenLine::*expected) {
  int n_mismatches = 0;
  const std::vector<GoldenLine> lines = golden_lines();
  for (const GoldenLine& line : lines) {
    const std::vector<TokenId> ids = encode(line.text);
    if (ids == line.*expected || ++n_mismatches > kShownMismatchesMax) continue;
    ADD_FAILURE() << nlohmann::json(line.text) << "\nours:      " << nlohmann::json(ids)
                  << "\nreference: " << nlohmann::json(line.*expected);
  }
  std::cout << lines.size() << " strings, " << n_mismatches << " mismatches\n";
  EXPECT_GE(lines.size(), 1500u);
  EXPECT_EQ(n_mismatches, 0);
}

TEST(TokenizerGolden, BytePairIdsEqualTheReference) {
  const auto tokenizer = demo_tokenizer();
  expect_equal_ids([&](std::string_view text) { return tokenizer->encode(text); },
                   &GoldenLine::byte_pair_ids);
}

TEST(TokenizerGolden, WordPieceIdsEqualTheReference) {
  const auto tokenizer = *WordPieceTokenizer::load(
      str_cat(std::getenv("RAG_DEPS_DIR"), "/models/all-minilm-l6-v2/vocab.txt"));
  expect_equal_ids(
      [&](std::string_view text) { return tokenizer->encode(text, kWordPieceTokensMax); },
      &GoldenLine::word_piece_ids);
}

}  // namespace
}  // namespace ragcache
