#include "loadgen/workload/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/strings.h"
#include "loadgen/workload/testing.h"
#include "loadgen/workload/text_file.h"
#include "loadgen/workload/trace.h"

namespace ragcache::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordingTest : public ::testing::Test {
 protected:
  RecordingTest() { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + name) << text;
    return folder_ + name;
  }

  absl::StatusOr<Workload> read(const std::string& name, const std::string& path) {
    options_.name = name;
    options_.data = path;
    return read_workload(options_);
  }
  std::string error(const std::string& name, const std::string& path) {
    const auto status = read(name, path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string folder_ = ::testing::TempDir() + "loadgen_recording/" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
  WorkloadOptions options_{.count_tokens = count_words};
};

// RAGPulse: system prompts 1 (3 tokens) and 2 (4), passages 3 (84) and 5 (20), history 6 (10) and
// input 7 (2).
class RagPulseTest : public RecordingTest {
 protected:
  RagPulseTest() {
    write("1_sys_prompt.jsonl",
          "{\"sys_prompt_id\":1,\"token_length\":3}\n{\"sys_prompt_id\":2,\"token_length\":4}\n");
    write("2_passages.jsonl",
          "{\"passage_id\":3,\"token_length\":84}\n{\"passage_id\":5,\"token_length\":20}\n");
    write("3_history.jsonl", "{\"history_id\":6,\"token_length\":10}\n");
    write("4_user_input.jsonl", "{\"user_input_id\":7,\"token_length\":2}\n");
  }

  static std::string line(const std::string& time, const std::string& passages, int input_length,
                          const std::string& history = "[]") {
    return str_cat(
        "{\"timestamp\":\"", time, "\",\"input_length\":", input_length,
        ",\"output_length\":30,\"hash_ids\":{\"sys_prompt\":[1,2],\"passages_ids\":", passages,
        ",\"history\":", history, ",\"web_search\":[99],\"user_input\":[7]}}\n");
  }
};

TEST_F(RagPulseTest, ComesByItsTimestampsWithRecordedLengths) {
  write("0_trace.jsonl",
        line("90", "[3]", 103, "[6]") + "\n" + line("82", "[5,3]", 120) + line("85", "[]", 20));
  const Workload workload = *read("ragpulse", folder_);
  EXPECT_TRUE(workload.has_times);
  EXPECT_TRUE(workload.substituted);
  EXPECT_FALSE(workload.retrieval);
  ASSERT_EQ(workload.documents.size(), 2u);
  EXPECT_EQ(workload.documents[0].id, "ragpulse/5");
  EXPECT_EQ(workload.documents[0].tokens, 20u);
  EXPECT_EQ(count_words(workload.documents[1].text), 84u);
  ASSERT_EQ(workload.requests.size(), 3u);
  const auto& requests = workload.requests;
  EXPECT_THAT(requests[0].documents, ElementsAre(0, 1));
  EXPECT_THAT(requests[1].documents, IsEmpty());
  EXPECT_THAT(requests[2].documents, ElementsAre(1));
  EXPECT_EQ(requests[0].max_tokens, 30u);
  EXPECT_EQ(requests[1].recorded_s, 3);
  EXPECT_EQ(requests[2].recorded_s, 8);
  // What of the prompt's length the passages do not take.
  EXPECT_EQ(count_words(requests[0].question), 16u);
  EXPECT_EQ(count_words(requests[1].question), 20u);
  EXPECT_EQ(count_words(requests[2].question), 19u);
  // The system prompt's seven words are the same, and so are the two of the input.
  const auto head = [](const std::string& text) {
    size_t end = 0;
    for (int i = 0; i < 7; ++i) end = text.find(' ', end + 1);
    return text.substr(0, end);
  };
  EXPECT_EQ(head(requests[0].question), head(requests[1].question));
  EXPECT_EQ(requests[0].question.substr(requests[0].question.rfind(' ')),
            requests[1].question.substr(requests[1].question.rfind(' ')));
}

TEST_F(RagPulseTest, LeavesOutWhatIsTooLongAndCapsAnswers) {
  write("0_trace.jsonl", line("1", "[5,3]", 120) + line("2", "[5]", 40) + line("3", "[]", 20) +
                             line("9", "[3]", 99));
  options_.max_prompt_tokens = 50;
  options_.max_tokens = 8;
  options_.max_requests = 1;
  Workload workload = *read("ragpulse", folder_);
  EXPECT_EQ(workload.left_out, 1u);
  ASSERT_EQ(workload.requests.size(), 1u);
  EXPECT_EQ(workload.documents.size(), 1u);
  EXPECT_EQ(workload.requests[0].recorded_s, 0);
  EXPECT_EQ(workload.requests[0].max_tokens, 8u);
  options_.max_requests = 0;
  workload = *read("ragpulse", folder_);
  EXPECT_EQ(workload.left_out, 2u);
  EXPECT_EQ(workload.requests.size(), 2u);
  options_.max_prompt_tokens = 10;
  EXPECT_THAT(error("ragpulse", folder_), HasSubstr("gives no request, 4 were too long"));
}

TEST_F(RagPulseTest, GivesTheSameTraceToAReplay) {
  write("0_trace.jsonl",
        line("90", "[3]", 99) + "\n" + line("82", "[5,3]", 120) + line("85", "[]", 20));
  const Trace trace = *read_trace(folder_, {});
  EXPECT_EQ(trace.name, "ragpulse");
  EXPECT_THAT(trace.documents, ElementsAre(TraceDocument{"5", 20}, TraceDocument{"3", 84}));
  EXPECT_THAT(trace.requests, ElementsAre(ElementsAre(0, 1), ElementsAre(1)));
}

TEST_F(RagPulseTest, NamesLineAndFieldOfWhatIsWrong) {
  write("0_trace.jsonl", line("1", "[]", 20) + line("90", "[4]", 99));
  EXPECT_THAT(error("ragpulse", folder_),
              HasSubstr("0_trace.jsonl:2: hash_ids.passages_ids: 4 is not in 2_passages.jsonl"));
  write("0_trace.jsonl", line("9x", "[3]", 99));
  EXPECT_THAT(error("ragpulse", folder_), HasSubstr("timestamp: must be a string of seconds"));
  write("0_trace.jsonl", line("9", "[3]", 92));
  EXPECT_THAT(error("ragpulse", folder_),
              HasSubstr("0_trace.jsonl:1: input_length: must be an integer from 93"));
  write("0_trace.jsonl", "{}");
  EXPECT_THAT(error("ragpulse", folder_), HasSubstr("timestamp: must be a string"));
  std::filesystem::remove(folder_ + "3_history.jsonl");
  EXPECT_THAT(error("ragpulse", folder_), HasSubstr("3_history.jsonl"));
}

TEST_F(RecordingTest, OfMooncakeSharesBlocksByTheirHash) {
  const std::string path =
      write("trace.jsonl",
            "{\"timestamp\":1500,\"input_length\":1100,\"output_length\":9,\"hash_ids\":[0,1,2]}\n"
            "{\"timestamp\":4000,\"input_length\":1024,\"output_length\":0,\"hash_ids\":[0,1]}\n"
            "{\"timestamp\":4000,\"input_length\":600,\"output_length\":5,\"hash_ids\":[]}\n");
  const Workload workload = *read("mooncake", path);
  ASSERT_EQ(workload.documents.size(), 2u);
  for (const CorpusDocument& block : workload.documents) {
    EXPECT_EQ(block.tokens, 512u);
    EXPECT_EQ(count_words(block.text), 512u);
  }
  const auto& requests = workload.requests;
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_THAT(requests[0].documents, ElementsAre(0, 1));
  EXPECT_EQ(count_words(requests[0].question), 1100u - 1024);
  // A prompt ends with a question: here it is the last block, with that block's words.
  EXPECT_THAT(requests[1].documents, ElementsAre(0));
  EXPECT_EQ(requests[1].question, workload.documents[1].text);
  EXPECT_EQ(requests[1].max_tokens, 1u);
  EXPECT_EQ(requests[1].recorded_s, 2.5);
  EXPECT_EQ(count_words(requests[2].question), 600u);
  // A folder with one trace is as good.
  EXPECT_EQ(read("mooncake", folder_)->requests.size(), 3u);
}

TEST_F(RecordingTest, OfMooncakeNamesLineAndFieldOfWhatIsWrong) {
  const auto with = [&](const std::string& fields) {
    return error("mooncake", write("trace.jsonl", "{\"timestamp\":0," + fields + "}"));
  };
  EXPECT_THAT(with("\"input_length\":0"), HasSubstr("trace.jsonl:1: input_length: must be"));
  EXPECT_THAT(with("\"input_length\":9"), HasSubstr("output_length: must be"));
  EXPECT_THAT(with("\"input_length\":9,\"output_length\":1"),
              HasSubstr("hash_ids: must be a list"));
  EXPECT_THAT(with("\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]"),
              HasSubstr("hash_ids: are 2, must be at most 1 for 512 tokens"));
  EXPECT_THAT(with("\"input_length\":512,\"output_length\":1,\"hash_ids\":[-1]"),
              HasSubstr("hash_ids: must be a list of integers"));
  write("other.jsonl", "");
  EXPECT_THAT(error("mooncake", folder_), HasSubstr("has 2 files of .jsonl, name one"));
}

TEST_F(RecordingTest, OfAzureIsLengthsAndTimes) {
  const std::string path = write("trace.csv",
                                 "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                 "2023-11-30 23:59:59.5000000,374,44\r\n"
                                 "2023-12-01 00:00:01.2500000,374,0\r\n"
                                 "2023-12-01 00:00:02+00:00,3,1\r\n");
  const Workload workload = *read("azure", path);
  EXPECT_THAT(workload.documents, IsEmpty());
  EXPECT_FALSE(workload.retrieval);
  const auto& requests = workload.requests;
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(count_words(requests[0].question), 374u);
  EXPECT_EQ(count_words(requests[1].question), 374u);
  EXPECT_NE(requests[0].question, requests[1].question);
  EXPECT_NEAR(requests[1].recorded_s, 1.75, 1e-6);
  EXPECT_NEAR(requests[2].recorded_s, 2.5, 1e-6);
  EXPECT_EQ(requests[0].max_tokens, 44u);
  EXPECT_EQ(requests[1].max_tokens, 1u);
}

TEST_F(RecordingTest, OfAzureNamesLineAndFieldOfWhatIsWrong) {
  const auto with = [&](const std::string& line) {
    return error("azure",
                 write("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n\n" + line + "\n"));
  };
  EXPECT_THAT(with("2023-11-16 18:15:46.68,374"), HasSubstr("trace.csv:3: must have the fields"));
  EXPECT_THAT(with("2023-11-16 18:15:46.68,1,2,3"), HasSubstr("must have the fields"));
  EXPECT_THAT(with("2023-11-16T18:15:46.68,1,2"), HasSubstr("TIMESTAMP: must be like"));
  EXPECT_THAT(with("2023-02-30 18:15:46.68,1,2"), HasSubstr("TIMESTAMP: has no such day"));
  EXPECT_THAT(with("2023-11-16 18:15:46.68,0,2"), HasSubstr("ContextTokens: must be an integer"));
  EXPECT_THAT(with("2023-11-16 18:15:46.68,1,2x"), HasSubstr("GeneratedTokens: must be"));
  EXPECT_THAT(error("azure", write("trace.csv", "2023-11-16 18:15:46.68,1,2\n")),
              HasSubstr("trace.csv:1: must be TIMESTAMP,"));
}

}  // namespace
}  // namespace ragcache::loadgen
