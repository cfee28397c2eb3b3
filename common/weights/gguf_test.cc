#include "common/weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "common/strings.h"
#include "common/weights/gguf_writer.h"

namespace ragcache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Gguf : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const GgufFile>> open(std::string_view bytes) {
    EXPECT_EQ(::ftruncate(descriptor_, 0), 0);
    EXPECT_EQ(::pwrite(descriptor_, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return GgufFile::open(path_);
  }
  std::string error(const GgufWriter& writer) {
    const auto file = open(writer.bytes());
    if (file.ok()) return "no error";
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(file.status().message());
  }
  ~Gguf() override { ::close(descriptor_); }

  // A file in memory: thousands of variants are written, and none is left behind.
  const int descriptor_ = ::memfd_create("gguf_test", MFD_CLOEXEC);
  const std::string path_ = str_cat("/proc/self/fd/", descriptor_);
};

// A little of everything that the reader knows.
GgufWriter small_file() {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_uint32("llama.block_count", 3);
  writer.add_int32("some.signed", 7);
  writer.add_int32("some.negative", -7);
  writer.add_float("llama.rope.freq_base", 100000.0f);
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  writer.add_uint64("some.large", uint64_t{1} << 63);
  writer.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "", "bc"});
  writer.add_int32s("tokenizer.ggml.token_type", std::vector<int32_t>{1, -3});
  writer.add_tensor("f32", std::vector<uint64_t>{3, 2}, 0, std::string(24, '\1'));
  writer.add_tensor("q4_1", std::vector<uint64_t>{64, 2}, 3, std::string(80, '\2'));
  writer.add_tensor("bf16", std::vector<uint64_t>{5}, 30, std::string(10, '\3'));
  return writer;
}

// Reads every byte that the file object gives access to, so that a sanitizer sees bad spans.
uint64_t sum_of_bytes(const GgufFile& file) {
  uint64_t sum = 0;
  for (const Tensor& tensor : file.tensors()) {
    for (const uint8_t byte : tensor.data) sum += byte;
  }
  return sum;
}

TEST_F(Gguf, ReadsMetadataAndTensors) {
  const auto opened = open(small_file().bytes());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const GgufFile& file = **opened;
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
  EXPECT_EQ(*file.get_uint("llama.block_count"), 3u);
  EXPECT_EQ(*file.get_uint("some.signed"), 7u);
  EXPECT_EQ(*file.get_uint("some.large"), uint64_t{1} << 63);
  EXPECT_EQ(*file.get_float("llama.rope.freq_base"), 100000.0);
  EXPECT_EQ(*file.get_bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_THAT(*file.get_strings("tokenizer.ggml.tokens"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*file.get_ints("tokenizer.ggml.token_type"), ElementsAre(1, -3));

  ASSERT_EQ(file.tensors().size(), 3u);
  const Tensor& quantised = **file.tensor("q4_1");
  EXPECT_EQ(quantised.type, GgmlType::kQ4_1);
  EXPECT_THAT(quantised.dimensions, ElementsAre(64, 2));
  EXPECT_EQ(quantised.element_count(), 128u);
  EXPECT_EQ(quantised.data.size(), 80u);
  EXPECT_EQ(sum_of_bytes(file), 24u * 1 + 80u * 2 + 10u * 3);
}

TEST_F(Gguf, ReadsVersion2AndAnAlignmentOfItsOwn) {
  GgufWriter writer;
  writer.version = 2;
  writer.alignment = 128;
  writer.add_uint32("general.alignment", 128);
  writer.add_tensor("a", std::vector<uint64_t>{1}, 0, "AAAA");
  writer.add_tensor("b", std::vector<uint64_t>{1}, 0, "BBBB");
  const auto file = open(writer.bytes());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*(*file)->tensor("b"))->data[0], 'B');
}

TEST_F(Gguf, TellsMissingKeysFromKeysOfAnotherType) {
  const auto file = *open(small_file().bytes());
  EXPECT_EQ(file->get_uint("missing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file->tensor("missing").status().code(), absl::StatusCode::kNotFound);
  for (const absl::Status& status :
       {file->get_uint("general.architecture").status(), file->get_uint("some.negative").status(),
        file->get_float("llama.block_count").status(), file->get_bool("llama.block_count").status(),
        file->get_string("tokenizer.ggml.tokens").status(),
        file->get_strings("tokenizer.ggml.token_type").status(),
        file->get_ints("tokenizer.ggml.tokens").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST_F(Gguf, RefusesWhatIsNoRegularFileOrEmpty) {
  EXPECT_EQ(GgufFile::open(path_ + ".missing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GgufFile::open("/").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Gguf, NamesTheFieldOfAHostileFile) {
  const std::vector<uint64_t> one = {1};
  EXPECT_THAT(open("GGML and more bytes").status().message(), HasSubstr("magic"));
  {
    GgufWriter writer = small_file();
    writer.version = 1;
    EXPECT_THAT(error(writer), HasSubstr("version 1"));
  }
  {
    GgufWriter writer;
    std::string length_beyond_file;
    GgufWriter::put<uint64_t>(length_beyond_file, UINT64_MAX);
    writer.add_raw("some.string", 8, length_beyond_file);
    EXPECT_THAT(error(writer), HasSubstr("some.string"));
  }
  {
    GgufWriter writer;
    std::string array;
    GgufWriter::put<uint32_t>(array, 4);
    GgufWriter::put<uint64_t>(array, uint64_t{1} << 62);  // times 4 bytes overflows
    writer.add_raw("some.array", 9, array);
    EXPECT_THAT(error(writer), HasSubstr("some.array has 4611686018427387904 elements"));
  }
  {
    GgufWriter writer;
    std::string array;
    GgufWriter::put<uint32_t>(array, 9);
    GgufWriter::put<uint64_t>(array, 1);
    writer.add_raw("some.array", 9, array + array);
    EXPECT_THAT(error(writer), HasSubstr("array of arrays"));
  }
  {
    GgufWriter writer;
    writer.add_raw("some.value", 13, "12345678");
    EXPECT_THAT(error(writer), HasSubstr("some.value has the unknown type 13"));
  }
  {
    GgufWriter writer;
    writer.add_raw("some.flag", 7, "\2");
    EXPECT_THAT(error(writer), HasSubstr("some.flag is a bool of value 2"));
  }
  {
    GgufWriter writer;
    writer.add_bool("twice", true);
    writer.add_bool("twice", true);
    EXPECT_THAT(error(writer), HasSubstr("twice occurs twice"));
  }
  for (const uint64_t alignment : {uint64_t{0}, uint64_t{24}, uint64_t{1} << 40}) {
    GgufWriter writer;
    writer.add_uint64("general.alignment", alignment);
    EXPECT_THAT(error(writer), HasSubstr("general.alignment"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", one, 16, "....");
    EXPECT_THAT(error(writer), HasSubstr("tensor weight has the element type IQ2_XXS"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("first", std::vector<uint64_t>{16}, 0, std::string(64, 'x'));
    writer.add_tensor_entry("second", one, 0, 32);
    EXPECT_THAT(error(writer), HasSubstr("tensor second overlaps tensor first"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", std::vector<uint64_t>{33}, 8, std::string(68, '.'));
    EXPECT_THAT(error(writer), HasSubstr("rows of 33 elements"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", std::vector<uint64_t>{uint64_t{1} << 32, uint64_t{1} << 32}, 0,
                      "....");
    EXPECT_THAT(error(writer), HasSubstr("dimension 1 of tensor weight"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", std::vector<uint64_t>{0}, 0, "....");
    EXPECT_THAT(error(writer), HasSubstr("dimension 0 of tensor weight is 0"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", std::vector<uint64_t>(5, 1), 0, "....");
    EXPECT_THAT(error(writer), HasSubstr("5 dimensions"));
  }
  for (const uint64_t offset : {uint64_t{64}, UINT64_MAX - 31}) {
    GgufWriter writer;
    writer.add_tensor("first", one, 0, "....");
    writer.add_tensor_entry("weight", one, 0, offset);
    EXPECT_THAT(error(writer), HasSubstr("tensor weight needs 4 bytes at offset"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("first", one, 0, "....");
    writer.add_tensor_entry("weight", one, 0, 4);
    EXPECT_THAT(error(writer), HasSubstr("offset 4 of tensor weight"));
  }
  {
    GgufWriter writer;
    writer.add_tensor("weight", one, 0, "....");
    writer.add_tensor("weight", one, 0, "....");
    EXPECT_THAT(error(writer), HasSubstr("tensor weight occurs twice"));
  }
}

TEST_F(Gguf, RefusesAFileCutAtAnyByte) {
  const std::string whole = small_file().bytes();
  // The padding behind the last tensor carries nothing, so only cuts before it lose something.
  const size_t needed = whole.size() - 22;
  for (size_t length = 0; length < needed; ++length) {
    const auto file = open(std::string_view(whole).substr(0, length));
    ASSERT_FALSE(file.ok()) << "cut at byte " << length;
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << file.status();
  }
  EXPECT_TRUE(open(std::string_view(whole).substr(0, needed)).ok());
}

TEST_F(Gguf, SurvivesRandomlyChangedBytes) {
  const std::string whole = small_file().bytes();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      // Extreme bytes make the large counts and offsets that a uniform byte rarely makes.
      const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff, static_cast<uint8_t>(random())};
      changed[random() % changed.size()] = static_cast<char>(extremes[random() % 6]);
    }
    const auto file = open(changed);
    if (file.ok()) {
      sum_of_bytes(**file);
    } else {
      ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << file.status();
    }
  }
}

TEST_F(Gguf, ReadsTheDemoModel) {
  const std::string path =
      std::string(std::getenv("RAG_DEPS_DIR")) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto opened = GgufFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const GgufFile& file = **opened;
  EXPECT_EQ(*file.get_uint("llama.block_count"), 30u);
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(file.tensors().size(), 272u);
  const Tensor& embedding = **file.tensor("token_embd.weight");
  EXPECT_EQ(embedding.type, GgmlType::kQ8_0);
  EXPECT_THAT(embedding.dimensions, ElementsAre(576, 49152));
  EXPECT_EQ(embedding.data.size(), 576u / 32 * 34 * 49152);
}

}  // namespace
}  // namespace ragcache
