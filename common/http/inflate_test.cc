#include "common/http/inflate.h"

#include <gtest/gtest.h>

#include <random>

#include "common/http/testing.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

absl::StatusOr<std::string> inflate_in_pieces(const std::string& bytes, size_t piece,
                                              bool& at_end) {
  Inflater inflater;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    inflater.feed(std::string_view(bytes).substr(at, piece));
    while (true) {
      const auto next = inflater.next();
      if (!next.ok()) return next.status();
      if (next->empty()) break;
      out += *next;
    }
  }
  at_end = inflater.at_end();
  return out;
}

TEST(Inflater, GivesTheSameHoweverTheInputIsCut) {
  std::mt19937 draw(7);
  std::string text(300'000, ' ');  // several pieces of output
  for (char& c : text) c = static_cast<char>('a' + draw() % 4);
  const std::string bytes = gzip(text) + gzip("") + gzip("a second member");
  for (size_t piece : {size_t{1}, size_t{7}, size_t{4096}, bytes.size()}) {
    bool at_end = false;
    const auto out = inflate_in_pieces(bytes, piece, at_end);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(*out, text + "a second member") << "pieces of " << piece;
    EXPECT_TRUE(at_end);
  }
}

TEST(Inflater, TellsWhatIsCutShort) {
  const std::string bytes = gzip("some text that is long enough");
  for (size_t length = 1; length < bytes.size(); ++length) {
    bool at_end = true;
    ASSERT_TRUE(inflate_in_pieces(bytes.substr(0, length), 100, at_end).ok());
    EXPECT_FALSE(at_end) << length << " bytes of " << bytes.size();
  }
}

TEST(Inflater, RefusesWhatIsNoGzip) {
  std::string damaged = gzip("text");
  damaged[damaged.size() - 6] ^= 1;  // its checksum
  for (const std::string& bytes :
       {std::string("{\"id\": 1}"), std::string("\x78\x9c\x4b"), damaged, gzip("x") + "trailing"}) {
    bool at_end;
    EXPECT_FALSE(inflate_in_pieces(bytes, 100, at_end).ok());
  }
}

TEST(Inflater, KeepsABombInBoundedPieces) {
  const std::string bytes = gzip(std::string(64 << 20, '0'));
  Inflater inflater;
  inflater.feed(bytes);
  size_t total = 0;
  while (true) {
    const auto piece = inflater.next();
    ASSERT_TRUE(piece.ok());
    if (piece->empty()) break;
    ASSERT_LE(piece->size(), 64u << 10);
    total += piece->size();
  }
  EXPECT_EQ(total, 64u << 20);
}

}  // namespace
}  // namespace ragcache::http
