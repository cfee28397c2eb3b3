#include "services/retrieval/filter/metadata_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/strings.h"
#include "services/retrieval/filter/filter.h"

namespace ragcache::retrieval {
namespace {

using ::testing::HasSubstr;

using Operator = Filter::Operator;

bool matches_one(const std::string& json, Operator op, std::vector<MetadataValue> values) {
  const Filter filter{.conditions = {{"f", op, std::move(values)}}};
  EXPECT_TRUE(check_filter(filter).ok());
  return matches(filter, parse_metadata(json).value());
}

TEST(Filter, ComparesValuesOfOneKind) {
  const std::string text = "m";
  EXPECT_TRUE(matches_one(R"({"f":2})", Operator::kIn, {1.0, 2.0}));
  EXPECT_FALSE(matches_one(R"({"f":"2"})", Operator::kIn, {1.0, 2.0}));
  EXPECT_TRUE(matches_one(R"({"f":["x","m"]})", Operator::kIn, {text}));
  EXPECT_FALSE(matches_one(R"({"g":"m"})", Operator::kIn, {text}));
  EXPECT_FALSE(matches_one(R"({"f":["x","m"]})", Operator::kNotIn, {text}));
  EXPECT_TRUE(matches_one(R"({"g":"m"})", Operator::kNotIn, {text}));
  EXPECT_TRUE(matches_one(R"({"f":1})", Operator::kNotIn, {true}));
  EXPECT_TRUE(matches_one(R"({"f":1.5})", Operator::kLess, {2.0}));
  EXPECT_FALSE(matches_one(R"({"f":2})", Operator::kLess, {2.0}));
  EXPECT_TRUE(matches_one(R"({"f":2})", Operator::kLessOrEqual, {2.0}));
  EXPECT_FALSE(matches_one(R"({"f":"1"})", Operator::kLess, {2.0}));
  EXPECT_FALSE(matches_one(R"({"f":true})", Operator::kGreaterOrEqual, {text}));
  EXPECT_TRUE(matches_one(R"({"f":"n"})", Operator::kGreater, {text}));
  EXPECT_TRUE(matches_one(R"({"f":["a","n"]})", Operator::kGreaterOrEqual, {text}));
  EXPECT_FALSE(matches_one(R"({})", Operator::kLess, {2.0}));
  EXPECT_TRUE(matches_one(R"({"f":0})", Operator::kExists, {true}));
  EXPECT_FALSE(matches_one(R"({"f":0})", Operator::kExists, {false}));
  EXPECT_TRUE(matches_one(R"({"g":0})", Operator::kExists, {false}));
  EXPECT_TRUE(matches(Filter{}, {}));
}

TEST(Filter, NamesTheConditionThatIsWrong) {
  const auto error = [](const Filter::Condition& condition) {
    const absl::Status status =
        check_filter({.conditions = {{"g", Operator::kIn, {1.0}}, condition}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({"", Operator::kIn, {1.0}}), HasSubstr("filter.conditions[1].field"));
  EXPECT_THAT(error({"f", Operator::kIn, {}}), HasSubstr("conditions[1].values: 0, must be 1.."));
  EXPECT_THAT(error({"f", Operator::kIn, std::vector<MetadataValue>(1001, 1.0)}),
              HasSubstr("values: 1001, must be 1..1000"));
  EXPECT_THAT(error({"f", Operator::kLess, {1.0, 2.0}}), HasSubstr("one number or one text"));
  EXPECT_THAT(error({"f", Operator::kGreater, {true}}), HasSubstr("one number or one text"));
  EXPECT_THAT(error({"f", Operator::kExists, {1.0}}), HasSubstr("must be one flag"));
  EXPECT_THAT(error({"f", Operator::kLess, {std::numeric_limits<double>::quiet_NaN()}}),
              HasSubstr("values[0]: is not a finite number"));
  EXPECT_THAT(
      std::string(check_filter({.conditions = std::vector<Filter::Condition>(33)}).message()),
      HasSubstr("33, at most 32"));
}

TEST(IdSet, HoldsIdsInAnyOrder) {
  IdSet ids;
  EXPECT_TRUE(ids.empty());
  for (const int64_t id : {1000, 1, 64, 63, 5'000'000}) ids.insert(id);
  ids.erase(64);
  ids.erase(77);
  ids.erase(9'000'000);
  EXPECT_EQ(ids.size(), 4u);
  for (const int64_t id : {1000, 1, 63, 5'000'000}) EXPECT_TRUE(ids.allows(id));
  for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{64}, int64_t{5'000'001},
                           std::numeric_limits<int64_t>::max()}) {
    EXPECT_FALSE(ids.allows(id)) << id;
  }
  const IdSet copy(ids.base(), {ids.words().begin(), ids.words().end()});
  EXPECT_TRUE(copy.allows(1000));
  EXPECT_EQ(copy.size(), ids.size());
}

// Against the plain meaning, over documents that come and go.
TEST(MetadataIndex, SelectsWhatTheFilterMeans) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937_64 random(seed);
  const auto value = [&]() -> MetadataValue {
    switch (random() % 3) {
      case 0:
        return static_cast<double>(random() % 6) - 3;
      case 1:
        return std::string(1, static_cast<char>('a' + random() % 4));
      default:
        return random() % 2 == 0;
    }
  };
  const auto name = [&] { return std::string(1, static_cast<char>('f' + random() % 3)); };
  const auto filter = [&] {
    Filter made;
    for (uint64_t n = random() % 3; n > 0; --n) {
      Filter::Condition condition{.field = name(), .op = static_cast<Operator>(random() % 7)};
      do {
        condition.values = {value()};
      } while (!check_filter({.conditions = {condition}}).ok());
      if (condition.op <= Operator::kNotIn) condition.values.push_back(value());
      made.conditions.push_back(std::move(condition));
    }
    return made;
  };

  MetadataIndex index;
  std::map<int64_t, Metadata> model;
  std::vector<std::vector<int64_t>> documents;
  const auto make_metadata = [&] {
    Metadata metadata;
    for (char field = 'f'; field < 'i'; ++field) {
      if (random() % 2 == 0) continue;
      MetadataField& made = metadata.emplace_back(std::string(1, field));
      for (uint64_t n = 1 + random() % 3; n > 0; --n) made.values.push_back(value());
    }
    return metadata;
  };
  int64_t next = 1;
  for (int round = 0; round < 6000; ++round) {
    if (random() % 5 < 3) {
      // Before it comes what does not stay, with the same vectors.
      std::vector<Metadata> withdrawn(random() % 3);
      for (size_t i = 0; i < withdrawn.size(); ++i) {
        withdrawn[i] = make_metadata();
        index.add(std::vector{next + 2 + static_cast<int64_t>(i)}, withdrawn[i]);
      }
      for (size_t i = 0; i < withdrawn.size(); ++i) {
        index.withdraw(std::vector{next + 2 + static_cast<int64_t>(i)}, withdrawn[i]);
      }
      const Metadata metadata = make_metadata();
      std::vector<int64_t>& vectors = documents.emplace_back();
      for (uint64_t n = 1 + random() % 3; n > 0; --n) vectors.push_back(next += 1 + random() % 2);
      index.add(vectors, metadata);
      for (const int64_t vector : vectors) model[vector] = metadata;
    } else if (!documents.empty()) {
      const size_t at = random() % documents.size();
      index.remove(documents[at]);
      for (const int64_t vector : documents[at]) model.erase(vector);
      documents.erase(documents.begin() + static_cast<ptrdiff_t>(at));
    }
    if (round % 20 != 0) continue;
    const Filter asked = filter();
    const auto selected = index.select(asked);
    std::set<int64_t> expected, found;
    for (const auto& [vector, metadata] : model) {
      if (matches(asked, metadata)) expected.insert(vector);
    }
    for (int64_t id = 0; id <= next + 100; ++id) {
      if (selected->allows(id)) found.insert(id);
    }
    ASSERT_EQ(found, expected) << "round " << round;
    ASSERT_EQ(index.size(), model.size());
  }
}

TEST(MetadataIndex, ForgetsManyRemovedVectors) {
  MetadataIndex index;
  const Metadata metadata = parse_metadata(R"({"f":"x","g":1})").value();
  for (int64_t id = 1; id <= 20'000; ++id) {
    index.add(std::vector{id}, metadata);
    if (id > 10) index.remove(std::vector{id - 10});
  }
  EXPECT_EQ(index.size(), 10u);
  EXPECT_EQ(index.select({.conditions = {{"g", Operator::kGreater, {0.5}}}})->size(), 10u);
}

}  // namespace
}  // namespace ragcache::retrieval
