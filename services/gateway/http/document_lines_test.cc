#include "services/gateway/http/document_lines.h"

#include <gtest/gtest.h>

namespace ragcache::gateway {
namespace {

TEST(DocumentLines, FindsTheSameDocumentsHoweverTheBodyIsCut) {
  const std::string body =
      "{\"id\":\"a\",\"text\":\"one\"}\r\n\n  \n{\"id\":\"\u00e9\",\"text\":\"two\\nlines\"}\n"
      "{\"id\":\"c\",\"title\":\"t\",\"text\":\"three\"}";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    DocumentLines lines(1000);
    std::vector<ParsedDocument> items;
    for (size_t at = 0; at < body.size(); at += piece) {
      ASSERT_TRUE(lines.feed(std::string_view(body).substr(at, piece), items).ok());
    }
    ASSERT_TRUE(lines.finish(items).ok());
    ASSERT_EQ(items.size(), 3u) << "pieces of " << piece;
    EXPECT_EQ(items[0].item.text(), "one");
    EXPECT_EQ(items[1].item.id(), "\u00e9");
    EXPECT_EQ(items[1].item.text(), "two\nlines");
    EXPECT_EQ(items[2].item.title(), "t");
    EXPECT_EQ(lines.line(), 5u);
  }
}

TEST(DocumentLines, HoldsNoMoreThanOneLine) {
  DocumentLines lines(100);
  std::vector<ParsedDocument> items;
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = lines.feed("0123456789", items);
  EXPECT_EQ(status.message(), "line 1: is longer than 100 bytes");
}

TEST(DocumentParser, NamesTheItemOfAnArray) {
  const auto items = parse_documents(R"([{"id":"a","text":"x"},{"id":"b"}])", 1000);
  EXPECT_EQ(items.status().message(), "[1].text: is required");
}

TEST(DocumentId, MustBePrintableUtf8OfABoundedLength) {
  EXPECT_TRUE(check_document_id("id", "dir/a b \u00fc").ok());
  EXPECT_TRUE(check_document_id("id", std::string(256, 'x')).ok());
  for (const std::string& id : {std::string(), std::string(257, 'x'), std::string("\xff"),
                                std::string("a\0b", 3), std::string("a\x7f")}) {
    EXPECT_FALSE(check_document_id("id", id).ok());
  }
}

TEST(DocumentId, OfAPieceIsLookedUpHoweverLongItsDocumentsIs) {
  const std::string longest(256, 'x');
  EXPECT_TRUE(check_stored_id("id", longest + "#4294967295").ok());
  EXPECT_FALSE(check_document_id("id", longest + "#1").ok());
  for (const char* more : {"y", "#", "#a", "#1a", "##1", "#12345678901"}) {
    EXPECT_FALSE(check_stored_id("id", longest + more).ok()) << more;
  }
  EXPECT_TRUE(check_stored_id("id", "#1").ok());
}

}  // namespace
}  // namespace ragcache::gateway
