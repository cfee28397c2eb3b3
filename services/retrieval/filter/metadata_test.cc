#include "services/retrieval/filter/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Values = std::vector<MetadataValue>;

TEST(Metadata, ReadsTextsNumbersFlagsAndLists) {
  const auto metadata = parse_metadata(
      R"({"year": 1990, "lang": "de", "price": -1.5e3, "draft": false, "none": [],
          "tags": ["x", 2, true]})");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(*metadata, (Metadata{{"draft", Values{false}},
                                 {"lang", Values{std::string("de")}},
                                 {"price", Values{-1500.0}},
                                 {"tags", Values{std::string("x"), 2.0, true}},
                                 {"year", Values{1990.0}}}));
  EXPECT_EQ(parse_metadata(metadata_json(*metadata)).value(), *metadata);
  EXPECT_THAT(parse_metadata("").value(), IsEmpty());
  EXPECT_THAT(parse_metadata("{}").value(), IsEmpty());
  EXPECT_EQ(metadata_json({}), "");
}

TEST(Metadata, WritesEqualMetadataEqually) {
  EXPECT_EQ(metadata_json(parse_metadata(R"({"b":[1], "a":"x","c":[]})").value()),
            metadata_json(parse_metadata(R"({"a":"x","b":1.0})").value()));
}

TEST(Metadata, NamesTheFieldAndTheBound) {
  const auto error = [](const std::string& json) {
    const auto metadata = parse_metadata(json);
    EXPECT_EQ(metadata.status().code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(metadata.status().message());
  };
  for (const char* json : {"[]", "1", "{", "null", "{\"a\":\"\xff\"}"}) {
    EXPECT_THAT(error(json), HasSubstr("metadata: must be a JSON object"));
  }
  EXPECT_THAT(error(R"({"a": null})"), HasSubstr("metadata.a: must be a text"));
  EXPECT_THAT(error(R"({"a": {"b": 1}})"), HasSubstr("metadata.a: must be a text"));
  EXPECT_THAT(error(R"({"a": [1, [2]]})"), HasSubstr("metadata.a[1]: must be a text"));
  EXPECT_THAT(error(R"({"": 1})"), HasSubstr("name has 0 bytes, must be 1..256"));
  EXPECT_THAT(error(str_cat("{\"", std::string(257, 'n'), "\": 1}")), HasSubstr("257 bytes"));
  EXPECT_THAT(error(str_cat("{\"a\": \"", std::string(4097, 't'), "\"}")),
              HasSubstr("metadata.a: 4097 bytes, at most 4096"));
  EXPECT_THAT(error(R"({"a": 9007199254740993})"), HasSubstr("metadata.a: a whole number beyond"));
  EXPECT_THAT(error(R"({"a": [18446744073709551615]})"), HasSubstr("metadata.a[0]: a whole"));
  EXPECT_TRUE(parse_metadata(R"({"a": 9007199254740992})").ok());
  std::string list = "1", fields = "\"f\":1";
  for (int i = 0; i < 256; ++i) list += ",1";
  EXPECT_THAT(error(str_cat("{\"a\":[", list, "]}")), HasSubstr("metadata.a: 257 values"));
  for (int i = 0; i < 64; ++i) fields += str_cat(",\"f", i, "\":1");
  EXPECT_THAT(error(str_cat("{", fields, "}")), HasSubstr("65 fields, at most 64"));
  EXPECT_THAT(error(std::string((16 << 10) + 1, ' ')), HasSubstr("16385 bytes, at most 16384"));
  EXPECT_THAT(error(std::string(8000, '[')), HasSubstr("must be a JSON object"));
}

}  // namespace
}  // namespace ragcache::retrieval
