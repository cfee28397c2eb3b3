#include "common/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "common/strings.h"

namespace ragcache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  return bytes.append(header).append(data);
}

constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
    R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[26,34]}})";

class Safetensors : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const SafetensorsFile>> open(std::string_view bytes) {
    EXPECT_EQ(::ftruncate(descriptor_, 0), 0);
    EXPECT_EQ(::pwrite(descriptor_, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return SafetensorsFile::open(path_);
  }
  // The error for a file whose only tensor, "t", has this entry before 8 bytes of data.
  std::string error(std::string_view entry) {
    const auto file = open(file_of(str_cat(R"({"t":)", entry, "}"), "12345678"));
    return file.ok() ? "no error" : std::string(file.status().message());
  }
  ~Safetensors() override { ::close(descriptor_); }

  const int descriptor_ = ::memfd_create("safetensors_test", MFD_CLOEXEC);
  const std::string path_ = str_cat("/proc/self/fd/", descriptor_);
};

uint64_t sum_of_bytes(const SafetensorsFile& file) {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    for (const uint8_t byte : tensor.data) sum += byte;
  }
  return sum;
}

TEST_F(Safetensors, ReadsTensorsAndTellsOnesItCannotRead) {
  const auto opened = open(file_of(kHeader, std::string(24, '\1') + std::string(10, '\2')));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const SafetensorsFile& file = **opened;
  const SafetensorsTensor& a = **file.tensor("a");
  EXPECT_EQ(a.type, SafetensorsType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.element_count(), 6u);
  EXPECT_EQ((*file.tensor("scalar"))->element_count(), 1u);
  EXPECT_EQ(sum_of_bytes(file), 24u + 2 * 2);
  EXPECT_EQ(file.tensor("b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(file.tensor("ids").status().message(), HasSubstr("I64"));
}

TEST_F(Safetensors, NamesTheFieldOfAHostileFile) {
  EXPECT_THAT(std::string(open("1234567").status().message()), HasSubstr("header length"));
  EXPECT_THAT(std::string(open(std::string(16, '\xff')).status().message()),
              HasSubstr("header length"));
  EXPECT_THAT(std::string(open(file_of("[1]", "")).status().message()), HasSubstr("JSON object"));
  EXPECT_THAT(std::string(open(file_of(std::string(1 << 20, '['), "")).status().message()),
              HasSubstr("JSON object"));
  EXPECT_THAT(error("3"), HasSubstr("dtype of tensor \"t\""));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2]})"), HasSubstr("data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"),
              HasSubstr("data section of 8"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
              HasSubstr("data_offsets"));
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), HasSubstr("needs 12"));
  // Products that overflow 64 bits.
  EXPECT_THAT(error(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
              HasSubstr("shape"));
  EXPECT_EQ(error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "no error");
  const std::string overlap = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_THAT(std::string(open(file_of(overlap, "12345678")).status().message()),
              HasSubstr("overlap at byte 4"));
}

TEST_F(Safetensors, SurvivesCutsAndRandomlyChangedBytes) {
  const std::string whole = file_of(kHeader, std::string(34, '\1'));
  for (size_t length = 1; length < whole.size(); ++length) {
    EXPECT_FALSE(open(std::string_view(whole).substr(0, length)).ok()) << "cut at " << length;
  }
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const char candidates[] = {'9', '0', '-', '"', ']', '}', '\xff', static_cast<char>(random())};
      changed[random() % changed.size()] = candidates[random() % sizeof(candidates)];
    }
    const auto file = open(changed);
    if (file.ok()) {
      sum_of_bytes(**file);
    } else {
      ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << file.status();
    }
  }
}

TEST_F(Safetensors, ReadsTheDemoEmbedder) {
  const auto opened = SafetensorsFile::open(
      str_cat(std::getenv("RAG_DEPS_DIR"), "/models/all-minilm-l6-v2/model.safetensors"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto embeddings = (*opened)->tensor("embeddings.word_embeddings.weight");
  ASSERT_TRUE(embeddings.ok()) << embeddings.status();
  EXPECT_THAT((*embeddings)->shape, ElementsAre(30522, 384));
  EXPECT_EQ((*embeddings)->data.size(), 30522u * 384 * 4);
}

}  // namespace
}  // namespace ragcache
