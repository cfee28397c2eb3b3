#include "loadgen/workload/zipf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "common/strings.h"
#include "loadgen/workload/testing.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {
namespace {

using ::testing::HasSubstr;

WorkloadOptions options_of(const ZipfOptions& zipf) {
  return {
      .name = "zipf", .max_requests = 200, .seed = 5, .zipf = zipf, .count_tokens = count_words};
}

TEST(ZipfSampler, DrawsRanksByTheirWeights) {
  constexpr int kDraws = 100'000;
  for (const double s : {0.0, 0.8, 1.2}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(str_cat("s ", s, ", seed ", seed));
      Random random(seed);
      const ZipfSampler ranks(5, s);
      std::vector<int> counts(5);
      for (int i = 0; i < kDraws; ++i) ++counts[ranks.draw(random, 1)[0]];
      double sum = 0;
      for (int rank = 1; rank <= 5; ++rank) sum += std::pow(rank, -s);
      for (int rank = 1; rank <= 5; ++rank) {
        const double share = std::pow(rank, -s) / sum;
        EXPECT_NEAR(counts[rank - 1] / double{kDraws}, share,
                    4 * std::sqrt(share * (1 - share) / kDraws));
      }
    }
  }
}

TEST(ZipfSampler, DrawsTheSecondByTheWeightsThatAreLeft) {
  constexpr int kDraws = 200'000;
  Random random(9);
  const ZipfSampler ranks(3, 1);  // weights 6, 3 and 2 of 11
  int first = 0, first_then_last = 0;
  for (int i = 0; i < kDraws; ++i) {
    const auto drawn = ranks.draw(random, 2);
    if (drawn[0] == 0) ++first;
    if (drawn[0] == 0 && drawn[1] == 2) ++first_then_last;
  }
  EXPECT_NEAR(first_then_last / double(first), 2 / 5.0, 0.006);
}

TEST(ZipfSampler, DrawsEachRankOnceEvenWhereWeightsVanish) {
  Random random(1);
  for (const double s : {0.0, 1.0, 10.0}) {
    const ZipfSampler ranks(200, s);
    const auto drawn = ranks.draw(random, 200);
    EXPECT_EQ(std::set<uint32_t>(drawn.begin(), drawn.end()).size(), 200u) << s;
  }
}

TEST(Zipf, HasDocumentsAndRequestsOfTheLengthsAskedFor) {
  for (const bool log_normal : {true, false}) {
    const Workload workload = *read_workload(options_of({.documents = 500,
                                                         .min_tokens = 50,
                                                         .max_tokens = 200,
                                                         .log_normal = log_normal,
                                                         .question_tokens = 9}));
    EXPECT_TRUE(workload.substituted);
    EXPECT_FALSE(workload.retrieval);
    ASSERT_EQ(workload.documents.size(), 500u);
    std::vector<uint32_t> lengths;
    for (const CorpusDocument& document : workload.documents) {
      EXPECT_EQ(count_words(document.text), document.tokens);
      lengths.push_back(document.tokens);
    }
    std::sort(lengths.begin(), lengths.end());
    EXPECT_GE(lengths.front(), 50u);
    EXPECT_LE(lengths.back(), 200u);
    EXPECT_NEAR(lengths[250], log_normal ? 100 : 125, 15);
    ASSERT_EQ(workload.requests.size(), 200u);
    for (const WorkloadRequest& request : workload.requests) {
      EXPECT_EQ(request.documents.size(), 2u);
      EXPECT_NE(request.documents[0], request.documents[1]);
      EXPECT_EQ(count_words(request.question), 9u);
    }
  }
}

TEST(Zipf, NamesTheOptionThatIsWrong) {
  const auto error = [](const WorkloadOptions& options) {
    return std::string(read_workload(options).status().message());
  };
  EXPECT_THAT(error(options_of({.s = -1})), HasSubstr("zipf.s: is -1"));
  EXPECT_THAT(error(options_of({.documents = 3, .top_k = 4})),
              HasSubstr("zipf.top_k: is 4, must be from 1 to 3"));
  EXPECT_THAT(error(options_of({.min_tokens = 9, .max_tokens = 8})), HasSubstr("zipf.min_tokens"));
  EXPECT_THAT(error(options_of({.documents = 1'000'000, .max_tokens = 65'000})),
              HasSubstr("more than 100000000 tokens"));
  WorkloadOptions none = options_of({});
  none.max_requests = 0;
  EXPECT_THAT(error(none), HasSubstr("max_requests: must be at least 1"));
}

}  // namespace
}  // namespace ragcache::loadgen
