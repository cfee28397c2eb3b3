#include "common/text/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/strings.h"
#include "common/tokenizer/testing.h"
#include "common/tokenizer/utf8.h"

namespace ragcache {
namespace {

using ::testing::HasSubstr;

std::string error_of(TextFormat format, std::string_view bytes) {
  const auto read = read_text(format, bytes);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(read.status().message());
}

TEST(Text, KnowsFormatsByTheEndingOfANameInAnyCase) {
  EXPECT_EQ(text_format_of_name("a/b.TXT"), TextFormat::kPlain);
  EXPECT_EQ(text_format_of_name("x.md"), TextFormat::kMarkdown);
  EXPECT_EQ(text_format_of_name("x.tar.htm"), TextFormat::kHtml);
  for (const char* name : {"x", "x.pdf", "html", "x.", ""}) {
    EXPECT_EQ(text_format_of_name(name), std::nullopt) << name;
  }
}

TEST(Text, ReadsPlainTextWithoutMarksAndReturns) {
  EXPECT_EQ(read_text(TextFormat::kPlain, "\xEF\xBB\xBF\r\n one\r\ntwo\rthree \n")->text,
            "one\ntwo\nthree");
  EXPECT_EQ(read_text(TextFormat::kPlain, "")->text, "");
  EXPECT_EQ(read_text(TextFormat::kPlain, " \n\t ")->text, "");
}

TEST(Text, NamesWhatIsNoText) {
  using std::string_literals::operator""s;
  for (const TextFormat format : {TextFormat::kPlain, TextFormat::kMarkdown, TextFormat::kHtml}) {
    EXPECT_THAT(error_of(format, "ab\xff"), HasSubstr("no valid UTF-8 at byte 2"));
    EXPECT_THAT(error_of(format, "ab\xc3"), HasSubstr("no valid UTF-8 at byte 2"));
    EXPECT_THAT(error_of(format, "ab\0c"s), HasSubstr("byte 2 is zero"));
    EXPECT_THAT(error_of(format, "\xff\xfe\x41\x00"s), HasSubstr("UTF-16"));
  }
}

TEST(Text, ReadsWhateverIsThere) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937_64 random(seed);
  const std::string marks[] = {"<",  ">",        "</",       "<p>",     "&",     "&lt;", "&#x3c;",
                               "[",  "](",       ")",        "`",       "```\n", "**",   "\n",
                               "# ", "---\n",    "<!--",     "-->",     "\\",    "\"",   "'",
                               "=",  "<script>", "</script", "<title>", "word "};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = round % 4 == 0 ? random_bytes(random, 1 + random() % 100) : "";
    for (uint64_t n = random() % 60; n > 0; --n) bytes += marks[random() % std::size(marks)];
    for (const TextFormat format : {TextFormat::kPlain, TextFormat::kMarkdown, TextFormat::kHtml}) {
      const auto read = read_text(format, bytes);
      if (!read.ok()) continue;
      for (const std::string& made : {read->title, read->text}) {
        for (size_t at = 0; at < made.size();) {
          const Utf8Char character = read_utf8(made, at);
          ASSERT_TRUE(character.valid) << bytes;
          at += character.n_bytes;
        }
        ASSERT_LE(made.size(), 2 * bytes.size());
      }
    }
  }
}

// A quadratic reader would take hours.
TEST(Text, IsLinearInHostileInput) {
  constexpr size_t kRepeats = 1'000'000;
  for (const char* part :
       {"<div>", "<a href=\"x", "<!--", "&", "&#", "[", "](", "[a](b", "<", "`", "**", "<svg>",
        "</", "<pre>\n", "# \n", "|-\n", "](x)", "[[]]", "<script "}) {
    std::string bytes;
    for (size_t i = 0; i < kRepeats; ++i) bytes += part;
    for (const TextFormat format : {TextFormat::kMarkdown, TextFormat::kHtml}) {
      EXPECT_TRUE(read_text(format, bytes).ok());
    }
  }
  std::string nested(kRepeats, '[');
  for (size_t i = 0; i < kRepeats; ++i) nested += "](x)";
  EXPECT_EQ(read_text(TextFormat::kMarkdown, nested)->text, "");
}

}  // namespace
}  // namespace ragcache
