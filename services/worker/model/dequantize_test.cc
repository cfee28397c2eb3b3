#include "services/worker/model/dequantize.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

std::vector<uint8_t> from_hex(const std::string& hex) {
  std::vector<uint8_t> bytes(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

// PyPI gguf's values, as tests/golden/README.md tells.
TEST(Dequantize, GivesTheReferencesBitsForRandomBlocksOfEveryQuantisedType) {
  std::ifstream file(std::string(std::getenv("RAG_SOURCE_DIR")) + "/tests/golden/quantized.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json types = nlohmann::json::parse(file);
  EXPECT_EQ(types.size(), 10u);
  for (const nlohmann::json& type : types) {
    const std::vector<uint8_t> blocks = from_hex(type.at("blocks"));
    const std::vector<uint8_t> expected = from_hex(type.at("values"));
    std::vector<float> values(expected.size() / sizeof(float));
    dequantize(static_cast<GgmlType>(type.at("type").get<uint32_t>()), blocks, values);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, expected.data() + i * sizeof(float), sizeof(bits));
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits)
          << type.at("name") << " element " << i << ": " << values[i] << ", reference "
          << std::bit_cast<float>(bits);
    }
  }
}

TEST(Dequantize, ReadsEveryFormatAsItsDefinitionSays) {
  std::vector<float> values(32);
  std::vector<uint8_t> block;
  // binary16: 0x3800 = 0.5, 0xC000 = -2, 0x0001 = 2^-24, 0x7C00 = infinity.
  const std::vector<uint8_t> halves{0x00, 0x38, 0x00, 0xC0, 0x01, 0x00, 0x00, 0x7C};
  dequantize(GgmlType::kF16, halves, std::span(values).first(4));
  EXPECT_EQ(values[0], 0.5f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(values[2], 0x1p-24f);
  EXPECT_TRUE(std::isinf(values[3]));
  dequantize(GgmlType::kBf16, std::vector<uint8_t>{0xC0, 0xBF}, std::span(values).first(1));
  EXPECT_EQ(values[0], -1.5f);

  block = {0x00, 0x38};  // scale 0.5
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<uint8_t>(i - 16));
  dequantize(GgmlType::kQ8_0, block, values);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], 0.5f * (i - 16));

  // Low nibbles are the first 16 elements, high nibbles the last.
  std::vector<uint8_t> nibbles;
  for (int i = 0; i < 16; ++i) nibbles.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
  block = {0x00, 0x38};
  block.insert(block.end(), nibbles.begin(), nibbles.end());
  dequantize(GgmlType::kQ4_0, block, values);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5f * (i - 8));
    EXPECT_EQ(values[16 + i], 0.5f * (7 - i));
  }
  block = {0x00, 0x38, 0x00, 0xC0};  // scale 0.5, minimum -2
  block.insert(block.end(), nibbles.begin(), nibbles.end());
  dequantize(GgmlType::kQ4_1, block, values);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[i], 0.5f * i - 2.0f);
    EXPECT_EQ(values[16 + i], 0.5f * (15 - i) - 2.0f);
  }
}

}  // namespace
}  // namespace ragcache::worker
