#include "services/worker/model/dequantize.h"

#include <bit>
#include <cstring>

#include "common/check.h"

namespace ragcache::worker {
namespace {

// Elements of one quantised block, for all three of the formats read here.
constexpr int64_t kBlock = 32;

uint16_t read_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// IEEE 754 binary16, all values.
float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

int64_t block_bytes(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return 4;
    case GgmlType::kF16:
      return 2;
    case GgmlType::kBf16:
      return 2;
    case GgmlType::kQ4_0:
      return 2 + 16;
    case GgmlType::kQ4_1:
      return 4 + 16;
    case GgmlType::kQ8_0:
      return 2 + 32;
  }
  RAG_CHECK(false);
}

void dequantize_q8_0(const uint8_t* block, float* values) {
  const float scale = from_half(read_u16(block));
  for (int64_t i = 0; i < kBlock; ++i) {
    values[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

void dequantize_q4(const uint8_t* quants, float scale, float minimum, float* values) {
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    values[i] = scale * static_cast<float>(quants[i] & 15) + minimum;
    values[kBlock / 2 + i] = scale * static_cast<float>(quants[i] >> 4) + minimum;
  }
}

}  // namespace

int64_t elements_per_block(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBf16:
      return 1;
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
    case GgmlType::kQ8_0:
      return kBlock;
  }
  RAG_CHECK(false);
}

int64_t storage_bytes(GgmlType type, int64_t elements) {
  return elements / elements_per_block(type) * block_bytes(type);
}

void dequantize(GgmlType type, std::span<const uint8_t> bytes, std::span<float> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  RAG_CHECK(n % elements_per_block(type) == 0);
  RAG_CHECK(static_cast<int64_t>(bytes.size()) == storage_bytes(type, n));
  const uint8_t* from = bytes.data();
  switch (type) {
    case GgmlType::kF32:
      if (n > 0) std::memcpy(values.data(), from, bytes.size());
      return;
    case GgmlType::kF16:
      for (int64_t i = 0; i < n; ++i) values[i] = from_half(read_u16(from + 2 * i));
      return;
    case GgmlType::kBf16:
      for (int64_t i = 0; i < n; ++i) {
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(read_u16(from + 2 * i)) << 16);
      }
      return;
    case GgmlType::kQ4_0:
      for (int64_t i = 0; i < n; i += kBlock, from += 18) {
        const float scale = from_half(read_u16(from));
        dequantize_q4(from + 2, scale, -8.0f * scale, values.data() + i);
      }
      return;
    case GgmlType::kQ4_1:
      for (int64_t i = 0; i < n; i += kBlock, from += 20) {
        dequantize_q4(from + 4, from_half(read_u16(from)), from_half(read_u16(from + 2)),
                      values.data() + i);
      }
      return;
    case GgmlType::kQ8_0:
      for (int64_t i = 0; i < n; i += kBlock, from += 34) dequantize_q8_0(from, values.data() + i);
      return;
  }
}

}  // namespace ragcache::worker
