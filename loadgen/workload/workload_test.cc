#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/strings.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/text_file.h"
#include "loadgen/workload/trace.h"

namespace ragcache::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WorkloadTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + name).parent_path());
    std::ofstream(folder_ + name) << text;
    return folder_ + name;
  }
  std::string error(const std::string& name, const std::string& text) {
    const auto status = read_trace(write(name, text), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string folder_ = ::testing::TempDir() + "loadgen_workload/" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
};

TEST_F(WorkloadTest, ReadsRecordedRetrievals) {
  const std::string path =
      write("some.jsonl",
            "{\"documents\":[{\"id\":\"a\",\"tokens\":7},{\"id\":\"b\",\"tokens\":9}]}\n\n"
            "{\"documents\":[]}\n"
            "{\"documents\":[{\"id\":\"b\",\"tokens\":9}]}");
  Trace trace = *read_trace(path, {});
  EXPECT_EQ(trace.name, "some");
  EXPECT_THAT(trace.documents, ElementsAre(TraceDocument{"a", 7}, TraceDocument{"b", 9}));
  EXPECT_THAT(trace.requests, ElementsAre(ElementsAre(0, 1), ElementsAre(1)));
  trace = *read_trace(path, {.top_k = 1, .max_requests = 1});
  EXPECT_EQ(trace.name, "some_top1");
  EXPECT_THAT(trace.requests, ElementsAre(ElementsAre(0)));
}

TEST_F(WorkloadTest, NamesLineAndFieldOfWhatIsWrong) {
  EXPECT_THAT(error("a.jsonl", "{\"documents\":[]}\n[1]\n"), HasSubstr("a.jsonl:2: is no JSON"));
  EXPECT_THAT(error("b.jsonl", "{}"), HasSubstr("b.jsonl:1: documents: must be a list"));
  EXPECT_THAT(error("c.jsonl", "{\"documents\":[{\"id\":1,\"tokens\":1}]}"),
              HasSubstr("documents.id: must be a string"));
  EXPECT_THAT(error("d.jsonl", "{\"documents\":[{\"id\":\"a\",\"tokens\":0}]}"),
              HasSubstr("tokens: must be an integer from 1 to 1048576"));
  EXPECT_THAT(
      error("e.jsonl", "{\"documents\":[{\"id\":\"a\",\"tokens\":1},{\"id\":\"a\",\"tokens\":2}]}"),
      HasSubstr("documents: a has 2 tokens, but 1 before"));
  EXPECT_THAT(error("f.jsonl", "{\"documents\":[]}"), HasSubstr("has no request with documents"));
  EXPECT_THAT(std::string(read_trace(folder_ + "none.jsonl", {}).status().message()),
              HasSubstr("none.jsonl: No such file"));
}

TEST_F(WorkloadTest, ShufflesByTheSeedAlone) {
  std::string lines;
  for (int i = 0; i < 50; ++i) {
    lines += str_cat("{\"documents\":[{\"id\":\"", i, "\",\"tokens\":1}]}\n");
  }
  const std::string path = write("many.jsonl", lines);
  const auto recorded = read_trace(path, {})->requests;
  const auto first = read_trace(path, {.shuffle = true, .seed = 1})->requests;
  EXPECT_EQ(first, read_trace(path, {.shuffle = true, .seed = 1})->requests);
  EXPECT_NE(first, read_trace(path, {.shuffle = true, .seed = 2})->requests);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(recorded));
}

TEST_F(WorkloadTest, ReadsRagPulseByItsTimestamps) {
  write("2_passages.jsonl",
        "{\"passage_id\":3,\"token_length\":84}\n{\"passage_id\":5,\"token_length\":20}\n");
  const auto line = [](const char* time, const char* passages) {
    return std::string("{\"timestamp\":\"") + time +
           "\",\"hash_ids\":{\"passages_ids\":" + passages + "}}\n";
  };
  write("0_trace.jsonl", line("90", "[3]") + "\n" + line("82", "[5,3]") + line("85", "[]"));
  const Trace trace = *read_trace(folder_, {});
  EXPECT_EQ(trace.name, "ragpulse");
  EXPECT_THAT(trace.documents, ElementsAre(TraceDocument{"5", 20}, TraceDocument{"3", 84}));
  EXPECT_THAT(trace.requests, ElementsAre(ElementsAre(0, 1), ElementsAre(1)));

  write("0_trace.jsonl", line("90", "[4]"));
  EXPECT_THAT(std::string(read_trace(folder_, {}).status().message()),
              HasSubstr("0_trace.jsonl:1: hash_ids.passages_ids: 4 is not in"));
  write("0_trace.jsonl", line("9x", "[3]"));
  EXPECT_THAT(std::string(read_trace(folder_, {}).status().message()),
              HasSubstr("timestamp: must be a string of seconds"));
}

TEST(Sample, IsDrawnByTheSeedAndOnlyIfThereAreMore) {
  std::vector<int> values{1, 2, 3, 4, 5, 6, 7, 8};
  sample(values, 8, 1);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  std::vector<int> other = values;
  sample(values, 3, 1);
  sample(other, 3, 1);
  EXPECT_EQ(values, other);
  EXPECT_EQ(values.size(), 3u);
}

TEST(Csv, TakesQuotedFieldsWithCommasQuotesAndLines) {
  EXPECT_THAT(*parse_csv("a,\"b, \"\"c\"\"\nd\",\r\n\n,e"),
              ElementsAre(ElementsAre("a", "b, \"c\"\nd", ""), ElementsAre("", "e")));
  EXPECT_THAT(*parse_csv(""), IsEmpty());
  EXPECT_FALSE(parse_csv("\"a").ok());
}

TEST_F(WorkloadTest, ReadsQuestionsWithTheirChoicesAndLeavesOutExcludedFiles) {
  write("mmlu/b_test.csv", "question,choice0,choice1,choice2,choice3,answer\nWhy?,w,x,y,z,0\n");
  write("mmlu/a_test.csv", "question,choice0,choice1,choice2,choice3,answer\nHow?,1,2,3,4,1\n");
  write("mmlu/c_test.csv", "question\nbroken\n");
  EXPECT_THAT(*read_questions(folder_ + "mmlu", "c_"),
              ElementsAre("How?\n1\n2\n3\n4", "Why?\nw\nx\ny\nz"));
  EXPECT_THAT(std::string(read_questions(folder_ + "mmlu", "").status().message()),
              HasSubstr("c_test.csv: record 2 has 1 fields, must have 6"));
  const std::string path = write("nq.jsonl", "{\"question\":\"who\"}\n");
  EXPECT_THAT(*read_questions(path, ""), ElementsAre("who"));
}

TEST_F(WorkloadTest, ReadsBothKindsOfCorporaAndJoinsNeighboursOfOneTitle) {
  const std::string lines = write("a.jsonl",
                                  "{\"id\":\"1\",\"title\":\"T\",\"text\":\"one\"}\n"
                                  "{\"id\":\"2\",\"title\":\"T\",\"text\":\"two\"}\n"
                                  "{\"id\":\"3\",\"title\":\"T\",\"text\":\"three\"}\n"
                                  "{\"id\":\"4\",\"title\":\"U\",\"text\":\"four\"}\n");
  std::vector<CorpusDocument> paragraphs = *read_corpus(lines);
  const uint32_t tokens[] = {10, 20, 15, 5};
  for (size_t i = 0; i < 4; ++i) paragraphs[i].tokens = tokens[i];
  const auto joined = join_neighbours(paragraphs, 30);
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_EQ(joined[0].id, "1");
  EXPECT_EQ(joined[0].text, "one\ntwo");
  EXPECT_EQ(joined[1].id, "3");
  EXPECT_EQ(joined[0].tokens, 30u);

  const std::string leads = write("b.json", "{\"Abacus\":{\"extract\":\"An abacus is\"}}");
  const auto documents = *read_corpus(leads);
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].title, "Abacus");
  EXPECT_EQ(documents[0].text, "An abacus is");
}

}  // namespace
}  // namespace ragcache::loadgen
