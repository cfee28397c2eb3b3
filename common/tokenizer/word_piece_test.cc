#include "common/tokenizer/word_piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "common/check.h"
#include "common/strings.h"
#include "common/tokenizer/bert_normalizer.h"
#include "common/tokenizer/testing.h"

namespace ragcache {
namespace {

using namespace std::string_view_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const WordPieceTokenizer>> load(std::string_view vocabulary) {
  const int descriptor = ::memfd_create("vocabulary", MFD_CLOEXEC);
  RAG_CHECK(::write(descriptor, vocabulary.data(), vocabulary.size()) ==
            static_cast<ssize_t>(vocabulary.size()));
  auto tokenizer = WordPieceTokenizer::load(str_cat("/proc/self/fd/", descriptor));
  ::close(descriptor);
  return tokenizer;
}

TEST(BertWords, SplitsAtPunctuationAndCjkAndStripsAccents) {
  EXPECT_THAT(bert_words("Crème  brûlée, s'il-vous"),
              ElementsAre("creme", "brulee", ",", "s", "'", "il", "-", "vous"));
  EXPECT_THAT(bert_words("ab漢字c ひらがな"), ElementsAre("ab", "漢", "字", "c", "ひらかな"));
  EXPECT_THAT(bert_words("$5+x^2=`y`"),
              ElementsAre("$", "5", "+", "x", "^", "2", "=", "`", "y", "`"));
  EXPECT_THAT(bert_words("İSTANBUL ΣΑΣ «ß»"), ElementsAre("istanbul", "σασ", "«", "ß", "»"));
}

TEST(BertWords, DropsControlAndInvalidCharacters) {
  EXPECT_THAT(bert_words("a\0b\x01\x0b"
                         "c\u200d\xff\ufffd"
                         "d\te\n"sv),
              ElementsAre("abcd", "e"));
  EXPECT_THAT(bert_words("a\u00a0b\u3000c\u2028d"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(bert_words(" \t\r\n"), ElementsAre());
}

class WordPiece : public ::testing::Test {
 protected:
  // ids:                            0     1     2     3   4   5    6    7  8
  static constexpr const char* kVocabulary =
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\naff\n##aff\n##able\n!\n";
  const std::shared_ptr<const WordPieceTokenizer> tokenizer_ = *load(kVocabulary);
};

TEST_F(WordPiece, TakesTheLongestPieceFirstAndWholeWordsAsUnknown) {
  EXPECT_THAT(tokenizer_->encode("unaffable!", 100), ElementsAre(2, 4, 6, 7, 8, 3));
  EXPECT_THAT(tokenizer_->encode("Un unaffables aff", 100), ElementsAre(2, 4, 1, 5, 3));
  EXPECT_THAT(tokenizer_->encode("[SEP]", 100), ElementsAre(2, 1, 1, 1, 3));
  EXPECT_THAT(tokenizer_->encode("", 100), ElementsAre(2, 3));
}

TEST_F(WordPiece, CutsOffWhatDoesNotFit) {
  EXPECT_THAT(tokenizer_->encode("unaffable!", 4), ElementsAre(2, 4, 6, 3));
  EXPECT_THAT(tokenizer_->encode("unaffable!", 2), ElementsAre(2, 3));
}

TEST_F(WordPiece, CallsWordsOfMoreThanHundredCharactersUnknown) {
  std::string word = "un";
  for (int i = 0; i < 14; ++i) word += "affable";
  EXPECT_EQ(tokenizer_->encode(word, 100).size(), 2u + 1 + 28);  // 100 characters
  EXPECT_THAT(tokenizer_->encode(word + "é", 100), ElementsAre(2, 1, 3));
}

TEST_F(WordPiece, RefusesVocabulariesThatCannotWork) {
  const auto error = [](std::string_view vocabulary) {
    return std::string(load(vocabulary).status().message());
  };
  EXPECT_THAT(error("[PAD]\n[UNK]\n[CLS]\n"), HasSubstr("no [SEP]"));
  EXPECT_THAT(error("[PAD]\na\nb\na\n"), HasSubstr("line 4"));
}

TEST(DemoWordPiece, SurvivesRandomBytes) {
  const auto tokenizer = *WordPieceTokenizer::load(
      str_cat(std::getenv("RAG_DEPS_DIR"), "/models/all-minilm-l6-v2/vocab.txt"));
  EXPECT_EQ(tokenizer->vocabulary_size(), 30522u);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    for (const TokenId id : tokenizer->encode(random_bytes(random, random() % 400), 256)) {
      ASSERT_LT(id, 30522u);
    }
  }
}

}  // namespace
}  // namespace ragcache
