#include "services/worker/model/dequantize.h"

#include <bit>
#include <cstring>

#include "common/check.h"
#include "kernels/half/half.h"

namespace ragcache::worker {
namespace {

using kernels::from_half;

// Elements of a block of the simple formats, and of a "super-block" of the K formats, whose parts
// of 16 or 32 have scales of their own in units of the super-block's scale.
constexpr int kBlock = 32;
constexpr int kSuperBlock = 256;

uint16_t read_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float read_half(const uint8_t* bytes) { return from_half(read_u16(bytes)); }

int low_nibble(uint8_t byte) { return byte & 15; }
int high_nibble(uint8_t byte) { return byte >> 4; }
int bit(uint8_t byte, int index) { return byte >> index & 1; }
int bit_pair(uint8_t byte, int index) { return byte >> 2 * index & 3; }

void f16(const uint8_t* block, float* values) { *values = read_half(block); }

void bf16(const uint8_t* block, float* values) {
  *values = std::bit_cast<float>(static_cast<uint32_t>(read_u16(block)) << 16);
}

// Low nibbles are the first half of a block, high nibbles the second, here and below.
void q4_0(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  for (int i = 0; i < 16; ++i) {
    values[i] = scale * (low_nibble(block[2 + i]) - 8);
    values[16 + i] = scale * (high_nibble(block[2 + i]) - 8);
  }
}

void q4_1(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  for (int i = 0; i < 16; ++i) {
    values[i] = scale * low_nibble(block[4 + i]) + minimum;
    values[16 + i] = scale * high_nibble(block[4 + i]) + minimum;
  }
}

// The fifth bits lie together: bit i % 8 of byte i / 8.
void q5_0(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  const uint8_t* const high = block + 2;
  const uint8_t* const low = block + 6;
  for (int i = 0; i < 16; ++i) {
    values[i] = scale * ((low_nibble(low[i]) | bit(high[i / 8], i % 8) << 4) - 16);
    values[16 + i] = scale * ((high_nibble(low[i]) | bit(high[2 + i / 8], i % 8) << 4) - 16);
  }
}

void q5_1(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const uint8_t* const high = block + 4;
  const uint8_t* const low = block + 8;
  for (int i = 0; i < 16; ++i) {
    values[i] = scale * (low_nibble(low[i]) | bit(high[i / 8], i % 8) << 4) + minimum;
    values[16 + i] = scale * (high_nibble(low[i]) | bit(high[2 + i / 8], i % 8) << 4) + minimum;
  }
}

void q8_0(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<int8_t>(block[2 + i]);
}

// scales [16]: scale and minimum nibbles of 16 elements each; quants [64]: bit pairs, pair j of 32
// bytes for the j-th 32 elements of each half; scale, scale of the minima.
void q2_k(const uint8_t* block, float* values) {
  const uint8_t* const scales = block;
  const uint8_t* const quants = block + 16;
  const float scale = read_half(block + 80);
  const float minimum = read_half(block + 82);
  for (int i = 0; i < kSuperBlock; ++i) {
    const uint8_t packed = quants[i / 128 * 32 + i % 32];
    const uint8_t part = scales[i / 16];
    values[i] =
        scale * low_nibble(part) * bit_pair(packed, i / 32 % 4) - minimum * high_nibble(part);
  }
}

// third bits [32]: bit j of byte i for element 32 j + i, inverted; quants [64] as in Q2_K;
// scales [12]: six bits each, less 32; scale.
void q3_k(const uint8_t* block, float* values) {
  const uint8_t* const third_bits = block;
  const uint8_t* const quants = block + 32;
  const uint8_t* const packed_scales = block + 96;
  const float scale = read_half(block + 108);
  float scales[16];
  for (int i = 0; i < 16; ++i) {
    const uint8_t low = packed_scales[i % 8];
    const int high = bit_pair(packed_scales[8 + i % 4], i / 4);
    scales[i] = scale * (((i < 8 ? low_nibble(low) : high_nibble(low)) | high << 4) - 32);
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int low = bit_pair(quants[i / 128 * 32 + i % 32], i / 32 % 4);
    values[i] = scales[i / 16] * (low - (bit(third_bits[i % 32], i / 32) != 0 ? 0 : 4));
  }
}

// The scales and minima of Q4_K and Q5_K: eight of six bits each in twelve bytes.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};

ScaleAndMinimum six_bits(const uint8_t* packed, int part) {
  if (part < 4) return {packed[part] & 63, packed[part + 4] & 63};
  return {low_nibble(packed[part + 4]) | packed[part - 4] >> 6 << 4,
          high_nibble(packed[part + 4]) | packed[part] >> 6 << 4};
}

// scale, scale of the minima; scales and minima [12] of 32 elements each; nibbles [128]: of 32
// bytes the low ones are 32 elements, the high ones the next 32.
void q4_k(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const uint8_t* const nibbles = block + 16;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum units = six_bits(block + 4, part);
    const float part_scale = scale * units.scale;
    const float part_minimum = minimum * units.minimum;
    for (int i = 0; i < 32; ++i) {
      const uint8_t packed = nibbles[part / 2 * 32 + i];
      const int quant = part % 2 == 0 ? low_nibble(packed) : high_nibble(packed);
      values[part * 32 + i] = part_scale * quant - part_minimum;
    }
  }
}

// Q4_K with fifth bits [32] before the nibbles: bit `part` of byte i.
void q5_k(const uint8_t* block, float* values) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const uint8_t* const high = block + 16;
  const uint8_t* const nibbles = block + 48;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum units = six_bits(block + 4, part);
    const float part_scale = scale * units.scale;
    const float part_minimum = minimum * units.minimum;
    for (int i = 0; i < 32; ++i) {
      const uint8_t packed = nibbles[part / 2 * 32 + i];
      const int low = part % 2 == 0 ? low_nibble(packed) : high_nibble(packed);
      values[part * 32 + i] = part_scale * (low | bit(high[i], part) << 4) - part_minimum;
    }
  }
}

// low nibbles [128]: of 64 bytes the low ones are 64 elements, the high ones the next 64; bit
// pairs [64] as in Q2_K; scales [16] of 16 elements each, signed bytes; scale.
void q6_k(const uint8_t* block, float* values) {
  const uint8_t* const nibbles = block;
  const uint8_t* const pairs = block + 128;
  const uint8_t* const scales = block + 192;
  const float scale = read_half(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const uint8_t packed = nibbles[i / 128 * 64 + i % 64];
    const int low = i / 64 % 2 == 0 ? low_nibble(packed) : high_nibble(packed);
    const int high = bit_pair(pairs[i / 128 * 32 + i % 32], i / 32 % 4);
    values[i] = scale * static_cast<int8_t>(scales[i / 16]) * ((low | high << 4) - 32);
  }
}

using DequantizeBlock = void (*)(const uint8_t* block, float* values);

DequantizeBlock block_function(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      break;  // copied
    case GgmlType::kF16:
      return f16;
    case GgmlType::kBf16:
      return bf16;
    case GgmlType::kQ4_0:
      return q4_0;
    case GgmlType::kQ4_1:
      return q4_1;
    case GgmlType::kQ5_0:
      return q5_0;
    case GgmlType::kQ5_1:
      return q5_1;
    case GgmlType::kQ8_0:
      return q8_0;
    case GgmlType::kQ2K:
      return q2_k;
    case GgmlType::kQ3K:
      return q3_k;
    case GgmlType::kQ4K:
      return q4_k;
    case GgmlType::kQ5K:
      return q5_k;
    case GgmlType::kQ6K:
      return q6_k;
  }
  RAG_CHECK(false);
}

}  // namespace

int64_t storage_bytes(GgmlType type, int64_t elements) {
  const BlockLayout layout = *block_layout(type);
  return elements / layout.elements * layout.bytes;
}

void dequantize(GgmlType type, std::span<const uint8_t> bytes, std::span<float> values) {
  const BlockLayout layout = *block_layout(type);
  const auto n = static_cast<int64_t>(values.size());
  RAG_CHECK(n % layout.elements == 0);
  RAG_CHECK(static_cast<int64_t>(bytes.size()) == storage_bytes(type, n));
  if (type == GgmlType::kF32) {
    if (n > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  const DequantizeBlock block = block_function(type);
  const uint8_t* from = bytes.data();
  for (int64_t i = 0; i < n; i += layout.elements, from += layout.bytes) {
    block(from, values.data() + i);
  }
}

}  // namespace ragcache::worker
