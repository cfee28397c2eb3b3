#include "services/ragcache/ingest/document_source.h"
#include "common/http/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/strings.h"

namespace ragcache {
namespace {

using http::gzip;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DocumentSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "source_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

  struct All {
    std::vector<json> documents;
    std::vector<std::string> origins;  // below folder_
    std::vector<std::string> errors;
    uint64_t counted = 0;
    size_t ignored = 0;
  };
  All read(const DocumentSource::Options& options) {
    All all;
    auto source = DocumentSource::open(options);
    EXPECT_TRUE(source.ok()) << source.status();
    all.counted = source->count_documents();
    all.ignored = source->ignored_count();
    while (true) {
      auto document = source->next();
      if (!document.ok()) {
        all.errors.emplace_back(document.status().message());
      } else if (!document->has_value()) {
        return all;
      } else {
        all.documents.push_back(json::parse((*document)->json));
        all.origins.push_back(
            str_cat((*document)->file.substr(folder_.size() + 1), ":", (*document)->line));
      }
    }
  }

  std::string folder_;
};

TEST_F(DocumentSourceTest, ReadsAFolderInOrderWithPathsForIds) {
  write("b.txt", "Second.\r\n");
  write("a/x.md", "# The title\nBody");
  write("a/y.html.gz", gzip("<p>Page</p>"));
  write("c.jsonl", "{\"id\":\"1\",\"text\":\"t\"}\n\n  \n{\"id\":\"2\",\"text\":\"u\"}");
  write("d.png", "x");
  const All all = read({.paths = {folder_}, .recursive = true});
  EXPECT_THAT(all.errors, IsEmpty());
  EXPECT_THAT(all.origins,
              ElementsAre("a/x.md:0", "a/y.html.gz:0", "b.txt:0", "c.jsonl:1", "c.jsonl:4"));
  EXPECT_EQ(all.documents[0],
            json({{"id", "a/x.md"}, {"title", "The title"}, {"text", "The title\n\nBody"}}));
  EXPECT_EQ(all.documents[1], json({{"id", "a/y.html.gz"}, {"title", "y"}, {"text", "Page"}}));
  EXPECT_EQ(all.documents[2], json({{"id", "b.txt"}, {"title", "b"}, {"text", "Second."}}));
  EXPECT_EQ(all.documents[4]["id"], "2");
  EXPECT_EQ(all.ignored, 1u);
  EXPECT_EQ(all.counted, 5u);
  EXPECT_THAT(read({.paths = {folder_}}).origins, ElementsAre("b.txt:0", "c.jsonl:1", "c.jsonl:4"));
}

TEST_F(DocumentSourceTest, TakesAFormatThatIsSaid) {
  const std::string path = write("notes", "# no heading");
  EXPECT_EQ(read({.paths = {path}, .format = IngestFormat::kText}).documents.at(0),
            json({{"id", "notes"}, {"title", "notes"}, {"text", "# no heading"}}));
  const auto unknown = DocumentSource::open({.paths = {path}});
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("say --format"));
  const auto missing = DocumentSource::open({.paths = {folder_ + "/none.txt"}});
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("none.txt: there is no such"));
}

TEST_F(DocumentSourceTest, NamesWhatItRefusesAndGoesOn) {
  const std::string good = "{\"id\":\"1\",\"text\":\"t\"}\n";
  write("01.txt", "bad \xff");
  write("02.txt", std::string("a\0b", 3));
  write("03.txt", " \n");
  write("04.txt.gz", gzip("whole text").substr(0, 15));
  write("05.txt.gz", gzip("text").substr(0, 10) + "\x07rubbish");
  write("06.html", "<meta charset=latin1>\xe9");
  write("07.jsonl.gz", gzip(good).substr(0, 25));
  write("08.jsonl", good + std::string((16 << 20) + 70'000, 'x') + "\n" + good);
  write("09.txt", "good");
  const All all = read({.paths = {folder_}});
  EXPECT_THAT(all.origins, ElementsAre("08.jsonl:1", "09.txt:0"));
  ASSERT_EQ(all.errors.size(), 8u);
  EXPECT_THAT(all.errors[0], HasSubstr("01.txt: no valid UTF-8 at byte 4"));
  EXPECT_THAT(all.errors[1], HasSubstr("02.txt: byte 1 is zero"));
  EXPECT_THAT(all.errors[2], HasSubstr("03.txt: has no text"));
  EXPECT_THAT(all.errors[3], HasSubstr("04.txt.gz: is truncated gzip"));
  EXPECT_THAT(all.errors[4], HasSubstr("05.txt.gz: is no valid gzip"));
  EXPECT_THAT(all.errors[5], HasSubstr("06.html: is in charset latin1"));
  EXPECT_THAT(all.errors[6], HasSubstr("07.jsonl.gz:"));
  EXPECT_THAT(all.errors[7], HasSubstr("08.jsonl:2: the line is longer than 16777216 bytes"));
}

TEST_F(DocumentSourceTest, StopsAtAGzipThatGrowsWithoutEnd) {
  std::string bomb;
  const std::string member = gzip(std::string(8 << 20, '\n'));
  for (int i = 0; i < 16; ++i) bomb += member;
  write("bomb.jsonl.gz", bomb);
  write("bomb.txt.gz", bomb);
  const All all = read({.paths = {folder_}});
  EXPECT_THAT(all.documents, IsEmpty());
  ASSERT_EQ(all.errors.size(), 2u);
  EXPECT_THAT(all.errors[0], HasSubstr("bomb.jsonl.gz:"));
  EXPECT_THAT(all.errors[0], HasSubstr("inflates to more than 200 times"));
  EXPECT_THAT(all.errors[1], HasSubstr("bomb.txt.gz: inflates to more than 200 times"));
}

}  // namespace
}  // namespace ragcache
