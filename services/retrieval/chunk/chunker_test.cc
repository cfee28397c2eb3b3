#include "services/retrieval/chunk/chunker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/strings.h"
#include "common/tokenizer/testing.h"
#include "common/tokenizer/utf8.h"
#include "services/retrieval/chunk/sentences.h"

namespace ragcache::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<std::string> sentences(const std::string& text) {
  std::vector<std::string> found;
  size_t begin = 0;
  for (const size_t end : sentence_ends(text)) {
    found.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return found;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = read_utf8(text, at);
    if (!character.valid) return false;
    at += character.n_bytes;
  }
  return true;
}

std::shared_ptr<const PromptFormat> format() {
  static const auto made = PromptFormat::create(demo_tokenizer()).value();
  return made;
}

// What holds for every document and every way to cut it.
void expect_good(const std::vector<Piece>& pieces, const std::string& title,
                 const std::string& text, const ChunkOptions& options) {
  ASSERT_FALSE(pieces.empty());
  const size_t title_tokens = format()->document(title, "").size();
  const size_t limit = std::max<size_t>(options.max_tokens,
                                        title_tokens + options.max_tokens - options.max_tokens / 2);
  const bool valid = is_utf8(text);
  const std::vector<size_t> ends = sentence_ends(text);
  std::string whole;
  for (const Piece& piece : pieces) {
    ASSERT_LT(piece.overlap_bytes, piece.text.size());
    const size_t begin = whole.size() - std::min<size_t>(piece.overlap_bytes, whole.size());
    EXPECT_EQ(piece.text.substr(0, piece.overlap_bytes), whole.substr(begin));
    if (piece.overlap_bytes > 0) {
      // Whole sentences are repeated, and no more of them than asked for.
      EXPECT_TRUE(begin == 0 || std::ranges::binary_search(ends, begin));
      EXPECT_TRUE(std::ranges::binary_search(ends, whole.size()));
      // Without its first sentence a text may have a token or two more.
      const size_t tokens =
          format()->tokenizer().encode(piece.text.substr(0, piece.overlap_bytes)).size();
      EXPECT_LE(tokens, options.overlap_tokens + 2);
    }
    whole += piece.text.substr(piece.overlap_bytes);
    EXPECT_EQ(piece.segment_tokens, format()->document(title, piece.text));
    EXPECT_EQ(piece.token_digest, digest_of_tokens(piece.segment_tokens));
    if (options.max_tokens > 0) {
      EXPECT_LE(piece.segment_tokens.size(), limit);
    }
    if (valid) {
      EXPECT_TRUE(is_utf8(piece.text));
    }
  }
  EXPECT_EQ(whole, text);
}

TEST(SentenceEnds, KeepsSentencesWithTheSpaceAfterThem) {
  EXPECT_THAT(sentences("One is here.  Two (is it?) too! \"Three.\" 4.5 m"),
              ElementsAre("One is here.  ", "Two (is it?) ", "too! ", "\"Three.\" ", "4.5 m"));
  EXPECT_THAT(sentences("天は青い。海も青い。"), ElementsAre("天は青い。", "海も青い。"));
  EXPECT_THAT(sentences(""), SizeIs(0));
}

TEST(SentenceEnds, TakesAWrappedLineForPartOfASentence) {
  EXPECT_THAT(sentences("A sentence that\ngoes on\r\nand on.\nand another.\n\nno capital\nList"),
              ElementsAre("A sentence that\ngoes on\r\nand on.\n", "and another.\n", "\n",
                          "no capital\n", "List"));
}

TEST(Chunker, KeepsAShortDocumentWhole) {
  const Chunker chunker(format());
  for (const uint32_t max_tokens : {0u, 64u}) {
    const auto pieces = chunker.cut("Title", "One. Two.", {.max_tokens = max_tokens});
    ASSERT_THAT(pieces, SizeIs(1));
    expect_good(pieces, "Title", "One. Two.", {.max_tokens = max_tokens});
  }
  const std::string text(10'000, 'x');
  EXPECT_THAT(chunker.cut("", text, {}), SizeIs(1));
  EXPECT_THAT(chunker.cut("", "", {.max_tokens = 64}), SizeIs(1));
}

TEST(Chunker, CutsAtSentenceEndsIntoEvenPiecesThatOverlap) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += str_cat("Keeper ", i, " counted the herons twice. ");
  const ChunkOptions options = {.max_tokens = 128, .overlap_tokens = 24};
  const auto pieces = Chunker(format()).cut("Herons", text, options);
  expect_good(pieces, "Herons", text, options);
  ASSERT_GE(pieces.size(), 3u);
  const size_t most = pieces[0].segment_tokens.size();
  for (const Piece& piece : pieces) {
    EXPECT_TRUE(piece.text.starts_with("Keeper ")) << piece.text;
    EXPECT_TRUE(piece.text.ends_with("twice. ")) << piece.text;
    EXPECT_GT(piece.segment_tokens.size(), most / 2);
    EXPECT_EQ(piece.overlap_bytes > 0, &piece != &pieces[0]);
  }
}

TEST(Chunker, CutsWhatHasNoSentencesAndNoWords) {
  const Chunker chunker(format());
  const ChunkOptions options = {.max_tokens = 64, .overlap_tokens = 16};
  std::string words, emoji, digits;
  for (int i = 0; i < 3000; ++i) {
    words += str_cat("word", i, " ");
    emoji += "\U0001F469\u200D\U0001F680";
    digits += static_cast<char>('0' + i % 10);
  }
  const auto pieces = chunker.cut("t", words, options);
  expect_good(pieces, "t", words, options);
  for (const Piece& piece : pieces) EXPECT_EQ(piece.text.back(), ' ');
  for (const std::string& text :
       {emoji, digits, std::string(100'000, ' '), std::string(100'000, '\n'),
        std::string(100'000, '\x01'), std::string(5000, '\0'), std::string(100'000, 'a')}) {
    expect_good(chunker.cut("t", text, options), "t", text, options);
  }
}

TEST(Chunker, IsLinearInAWordOfTwoMegabytes) {
  const std::string text(2 << 20, 'a');
  const ChunkOptions options = {.max_tokens = 1024, .overlap_tokens = 64};
  expect_good(Chunker(format()).cut("", text, options), "", text, options);
}

TEST(Chunker, LeavesRoomForTextUnderALongTitle) {
  const std::string title(4096, 't');
  std::string text;
  for (int i = 0; i < 200; ++i) text += str_cat("Sentence number ", i, ". ");
  const ChunkOptions options = {.max_tokens = 64, .overlap_tokens = 8};
  expect_good(Chunker(format()).cut(title, text, options), title, text, options);
}

TEST(Chunker, KeepsItsPromisesForRandomTexts) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> parts = {" ",
                                          ". ",
                                          "\n",
                                          "\n\n",
                                          "word",
                                          "Heron",
                                          ", ",
                                          "! ",
                                          "\u00e9",
                                          "\u5929",
                                          "\u3002",
                                          "\U0001F600",
                                          "supercalifragilistic",
                                          "x",
                                          "  ",
                                          "\r\n",
                                          "1234",
                                          "?\" ",
                                          "e\u0301",
                                          "\t",
                                          "The mill of the old harbour is closed. "};
  const Chunker chunker(format());
  for (int round = 0; round < 150; ++round) {
    std::string text;
    if (round % 10 == 9) {
      text = random_bytes(random, 1 + random() % 2000);
    } else {
      for (uint64_t n = 1 + random() % 1500; n > 0; --n) {
        const uint64_t repeat = random() % 50 == 0 ? random() % 200 : 1;
        const std::string& part = parts[random() % parts.size()];
        for (uint64_t i = 0; i < repeat; ++i) text += part;
      }
    }
    const auto max_tokens = static_cast<uint32_t>(16 + random() % 200);
    const ChunkOptions options = {.max_tokens = max_tokens,
                                  .overlap_tokens = static_cast<uint32_t>(random() % max_tokens)};
    const std::string title(random() % 40, 't');
    expect_good(chunker.cut(title, text, options), title, text, options);
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace ragcache::retrieval
