#include "loadgen/workload/substitute_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/hash.h"
#include "common/strings.h"
#include "loadgen/workload/prompt_text.h"
#include "loadgen/workload/sample.h"

namespace ragcache::loadgen {
namespace {

constexpr size_t kWordsMin = 32;

constexpr auto kWords = std::to_array<std::string_view>({
    "the",      "of",      "and",      "in",     "to",      "is",     "was",     "for",
    "as",       "on",      "with",     "by",     "that",    "it",     "from",    "at",
    "are",      "this",    "his",      "be",     "an",      "or",     "which",   "were",
    "had",      "not",     "have",     "has",    "but",     "one",    "also",    "its",
    "new",      "first",   "their",    "they",   "been",    "he",     "she",     "her",
    "all",      "other",   "can",      "when",   "there",   "more",   "who",     "time",
    "only",     "would",   "two",      "some",   "about",   "may",    "into",    "over",
    "after",    "no",      "such",     "most",   "so",      "than",   "used",    "made",
    "between",  "them",    "many",     "where",  "work",    "world",  "years",   "people",
    "state",    "part",    "war",      "life",   "year",    "city",   "these",   "under",
    "through",  "use",     "out",      "up",     "then",    "any",    "each",    "name",
    "number",   "while",   "history",  "high",   "school",  "system", "during",  "before",
    "home",     "group",   "music",    "water",  "power",   "day",    "well",    "what",
    "back",     "long",    "house",    "family", "early",   "form",   "large",   "public",
    "game",     "line",    "second",   "both",   "local",   "end",    "very",    "book",
    "small",    "art",     "service",  "same",   "left",    "right",  "order",   "air",
    "young",    "play",    "place",    "main",   "law",     "team",   "show",    "set",
    "body",     "case",    "class",    "court",  "data",    "field",  "figure",  "film",
    "fire",     "force",   "free",     "full",   "good",    "great",  "hand",    "head",
    "human",    "land",    "light",    "list",   "live",    "man",    "market",  "mass",
    "member",   "model",   "money",    "month",  "move",    "open",   "own",     "page",
    "paper",    "party",   "plan",     "plant",  "point",   "press",  "process", "product",
    "program",  "quality", "question", "range",  "rate",    "real",   "record",  "report",
    "research", "result",  "river",    "road",   "role",    "room",   "run",     "science",
    "sea",      "self",    "short",    "side",   "single",  "size",   "social",  "society",
    "space",    "special", "stage",    "start",  "station", "step",   "story",   "street",
    "style",    "support", "table",    "term",   "test",    "text",   "theory",  "third",
    "top",      "total",   "town",     "trade",  "train",   "type",   "value",   "view",
    "village",  "voice",   "wall",     "way",    "week",    "white",  "wide",    "word",
});

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

uint64_t seed_of(std::string_view key) {
  const Digest digest = sha256(key);
  uint64_t seed = 0;
  for (size_t i = 0; i < sizeof(seed); ++i) seed = seed << 8 | digest[i];
  return seed;
}

}  // namespace

absl::StatusOr<SubstituteText> SubstituteText::create(const TokenCounter& count_tokens) {
  // A segment's tokens besides those of its only word: most words agree on them.
  const auto around = [&](std::string_view word) {
    return count_tokens(document_text("", word)) - 1;
  };
  std::vector<std::string_view> words;
  uint32_t document_tokens = 0;
  for (const std::string_view word : kWords) {
    if (count_tokens(word) != 1 || count_tokens(str_cat(word, " ", word)) != 2) continue;
    if (words.empty()) document_tokens = around(word);
    if (around(word) == document_tokens) words.push_back(word);
  }
  std::vector<std::string_view> backwards(words.rbegin(), words.rend());
  if (words.size() < kWordsMin || count_tokens(joined(words)) != words.size() ||
      count_tokens(joined(backwards)) != words.size()) {
    return absl::FailedPreconditionError(
        str_cat("the model's tokenizer has ", words.size(), " of ", kWords.size(),
                " common words as one token wherever they stand, must have at least ", kWordsMin));
  }
  return SubstituteText(std::move(words), document_tokens);
}

std::string SubstituteText::text(std::string_view key, uint32_t tokens) const {
  Random random(seed_of(key));
  std::vector<std::string_view> words(tokens);
  for (std::string_view& word : words) word = words_[random() % words_.size()];
  return joined(words);
}

CorpusDocument SubstituteText::document(std::string key, uint32_t tokens) const {
  tokens = std::max(tokens, document_tokens_ + 1);
  std::string words = text(key, tokens - document_tokens_);
  return {.id = std::move(key), .text = std::move(words), .tokens = tokens};
}

}  // namespace ragcache::loadgen
