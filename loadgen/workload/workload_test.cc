#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "common/strings.h"
#include "loadgen/workload/corpus.h"
#include "loadgen/workload/questions.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/squad.h"
#include "loadgen/workload/testing.h"
#include "loadgen/workload/text_file.h"
#include "loadgen/workload/trace.h"
#include "loadgen/workload/workload.h"

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

std::vector<std::string> texts_of(const std::vector<Question>& questions) {
  std::vector<std::string> texts;
  for (const Question& question : questions) texts.push_back(question.text);
  return texts;
}

TEST_F(WorkloadTest, ReadsQuestionsWithTheirChoicesAndLeavesOutExcludedFiles) {
  write("mmlu/b_test.csv", "question,choice0,choice1,choice2,choice3,answer\nWhy?,w,x,y,z,0\n");
  write("mmlu/a_test.csv", "How?,1,2,3,4,B\n");  // as first published
  write("mmlu/c_test.csv", "question\nbroken\n");
  write("mmlu/LICENSE", "none");
  EXPECT_THAT(texts_of(*read_questions(folder_ + "mmlu", "c_")),
              ElementsAre("How?\n1\n2\n3\n4", "Why?\nw\nx\ny\nz"));
  EXPECT_THAT(std::string(read_questions(folder_ + "mmlu", "").status().message()),
              HasSubstr("c_test.csv: record 2 has 1 fields, must have 6"));
  const std::string path = write(
      "nq.jsonl", "{\"question\":\"who\",\"answer\":[\"a\",\"b\"]}\n{\"question\":\"why\"}\n");
  const auto questions = *read_questions(path, "");
  EXPECT_THAT(texts_of(questions), ElementsAre("who", "why"));
  EXPECT_THAT(questions[0].answers, ElementsAre("a", "b"));
  write("nq.jsonl", "{\"question\":\"who\",\"answer\":\"a\"}\n");
  EXPECT_THAT(std::string(read_questions(path, "").status().message()),
              HasSubstr("nq.jsonl:1: answer: must be a list"));
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

TEST_F(WorkloadTest, JoinsAndDrawsACorpus) {
  std::vector<CorpusDocument> passages;
  for (int i = 0; i < 40; ++i) {
    passages.push_back({.id = str_cat(i), .title = str_cat("T", i / 4), .text = "one two three"});
  }
  std::vector<std::string> ids;
  const auto documents = make_corpus(
      passages, {.doc_tokens = 10, .min_doc_tokens = 5, .documents = 6}, 1, count_words, &ids);
  ASSERT_EQ(documents.size(), 6u);
  for (const CorpusDocument& document : documents) {
    // Three of four passages; the fourth stays alone and is too short. The title counts.
    EXPECT_EQ(document.tokens, 10u);
    EXPECT_EQ(std::stoi(document.id) % 4, 0);
  }
  ASSERT_EQ(ids.size(), 40u);
  EXPECT_EQ(ids[5], "4");
  EXPECT_EQ(ids[6], "4");
  EXPECT_EQ(ids[7], "7");
}

TEST_F(WorkloadTest, AsksMmluAndNqInTheSeedsOrder) {
  std::string csv, jsonl;
  for (int i = 0; i < 20; ++i) {
    csv += str_cat("q", i, ",a,b,c,d,A\n");
    jsonl += str_cat("{\"question\":\"q", i, "\",\"answer\":[\"x\"]}\n");
  }
  WorkloadOptions options{.name = "mmlu", .data = write("q.csv", csv), .count_tokens = count_words};
  options.corpus.paths = {
      write("c.jsonl", "{\"id\":\"1\",\"title\":\"T\",\"text\":\"one two\"}\n")};
  options.max_requests = 5;
  const Workload mmlu = *read_workload(options);
  EXPECT_TRUE(mmlu.retrieval);
  EXPECT_FALSE(mmlu.has_times);
  EXPECT_EQ(mmlu.documents.size(), 1u);
  ASSERT_EQ(mmlu.requests.size(), 5u);
  EXPECT_EQ(mmlu.requests[0].max_tokens, 1u);
  const auto all = [](const Workload& workload) {
    std::string questions;
    for (const WorkloadRequest& request : workload.requests) questions += request.question;
    return questions;
  };
  EXPECT_EQ(all(mmlu), all(*read_workload(options)));
  options.seed = 2;
  EXPECT_NE(all(mmlu), all(*read_workload(options)));

  options.name = "nq";
  options.data = write("q.jsonl", jsonl);
  const Workload nq = *read_workload(options);
  EXPECT_EQ(nq.requests[0].max_tokens, kAnswerTokens);
  EXPECT_THAT(nq.requests[0].answers, ElementsAre("x"));
  options.corpus.paths.push_back(options.corpus.paths[0]);
  EXPECT_THAT(std::string(read_workload(options).status().message()),
              HasSubstr("documents: two have the id 1"));
  options.name = "trivia";
  EXPECT_THAT(std::string(read_workload(options).status().message()),
              HasSubstr("workload: is \"trivia\", must be of mmlu, nq, squad"));
}

constexpr char kSquad[] =
    R"({"version":"1.1","data":[{"title":"T","paragraphs":[
        {"context":"one two three","qas":[
          {"id":"a","question":"one?","answers":[{"text":"one","answer_start":0}]}]},
        {"context":"four five","qas":[
          {"id":"b","question":"four?","answers":[{"text":"four"},{"text":"five"}]}]}]},
       {"title":"U","paragraphs":[{"context":"six","qas":[
          {"id":"c","question":"six?","answers":[{"text":"six"}]}]}]}]})";

TEST_F(WorkloadTest, KnowsTheDocumentThatHasTheAnswerInSquad) {
  WorkloadOptions options{
      .name = "squad", .data = write("dev-v1.1.json", kSquad), .count_tokens = count_words};
  const auto golds = [&] {  // question: id of its document, and that document's text
    std::map<std::string, std::pair<std::string, std::string>> golds;
    const Workload workload = *read_workload(options);
    EXPECT_TRUE(workload.retrieval);
    for (const WorkloadRequest& request : workload.requests) {
      EXPECT_THAT(request.documents, IsEmpty());
      const CorpusDocument& gold = workload.documents.at(request.gold.value());
      EXPECT_THAT(gold.text, HasSubstr(request.answers[0]));
      golds[request.question] = {gold.id, gold.text};
    }
    return golds;
  };
  auto found = golds();
  EXPECT_EQ(found.size(), 3u);
  EXPECT_EQ(found["four?"].first, "T/1");
  options.corpus.doc_tokens = 100;
  found = golds();
  EXPECT_EQ(found["one?"], found["four?"]);
  EXPECT_EQ(found["four?"].second, "one two three\nfour five");
  // Questions go with documents that were not drawn.
  options.corpus.min_doc_tokens = 5;
  EXPECT_EQ(golds().size(), 2u);
}

TEST_F(WorkloadTest, ReadsSquadAsLinesAndAsACorpus) {
  write("squad/passages.jsonl",
        "{\"id\":\"p0\",\"title\":\"T\",\"text\":\"one\"}\n"
        "{\"id\":\"p1\",\"title\":\"T\",\"text\":\"two\"}\n");
  write("squad/questions.jsonl",
        "{\"id\":null,\"passage\":\"p1\",\"question\":\"two?\",\"answers\":[\"two\"]}\n");
  const Squad squad = *read_squad(folder_ + "squad");
  EXPECT_EQ(squad.paragraphs.size(), 2u);
  ASSERT_EQ(squad.questions.size(), 1u);
  EXPECT_EQ(squad.questions[0].paragraph, 1u);
  EXPECT_THAT(squad.questions[0].answers, ElementsAre("two"));
  write("squad/questions.jsonl",
        "{\"passage\":\"p9\",\"question\":\"two?\",\"answers\":[\"two\"]}\n");
  EXPECT_THAT(std::string(read_squad(folder_ + "squad").status().message()),
              HasSubstr("questions.jsonl:1: passage: p9 is not in"));

  EXPECT_EQ(read_corpus(write("dev.json", kSquad))->size(), 3u);
  const std::string broken =
      write("broken.json", R"({"data":[{"title":"T","paragraphs":[{"context":"x","qas":[{}]}]}]})");
  EXPECT_THAT(std::string(read_squad(broken).status().message()),
              HasSubstr("broken.json: data[0].paragraphs[0].qas[0].question: must be a string"));
}

}  // namespace
}  // namespace ragcache::loadgen
