#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half/half.h"
#include "kernels/linear/packed_weights.h"

namespace ragcache::kernels {

inline constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kF16,
                                            WeightFormat::kQ8_0, WeightFormat::kQ4_0,
                                            WeightFormat::kQ4_1};
inline const char* name_of(WeightFormat format) {
  static constexpr const char* kNames[] = {"F32", "F16", "Q8_0", "Q4_0", "Q4_1"};
  return kNames[static_cast<int>(format)];
}

inline bool is_quantised(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16;
}

// A matrix as a file stores it, and what its rows stand for by the definition of the format.
struct StoredMatrix {
  std::vector<std::vector<uint8_t>> stored;
  std::vector<std::vector<float>> values;

  StoredMatrix(WeightFormat format, int64_t out, int64_t in, std::mt19937& random) {
    for (int64_t row = 0; row < out; ++row) {
      stored.emplace_back();
      values.emplace_back();
      while (static_cast<int64_t>(values.back().size()) < in) add_block(format, random);
    }
  }

  PackedWeights packed(WeightFormat format) const {
    PackedWeights weights(stored.size(), values[0].size(), format);
    for (size_t row = 0; row < stored.size(); ++row) weights.set_row(row, stored[row]);
    return weights;
  }

  PackedWeights dequantized() const {
    PackedWeights weights(values.size(), values[0].size());
    for (size_t row = 0; row < values.size(); ++row) weights.set_row(row, values[row]);
    return weights;
  }

 private:
  void add_half(float value) {
    const uint16_t half = to_half(value);
    stored.back().push_back(half & 255);
    stored.back().push_back(half >> 8);
  }

  void add_block(WeightFormat format, std::mt19937& random) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<float>& row = values.back();
    if (format == WeightFormat::kF32) {
      row.push_back(normal(random));
      uint8_t bytes[4];
      std::memcpy(bytes, &row.back(), 4);
      stored.back().insert(stored.back().end(), bytes, bytes + 4);
      return;
    }
    const float scale = from_half(to_half(normal(random)));
    const float minimum = from_half(to_half(normal(random)));
    add_half(scale);
    if (format == WeightFormat::kF16) {
      row.push_back(scale);
      return;
    }
    if (format == WeightFormat::kQ8_0) {
      for (int i = 0; i < 32; ++i) {
        stored.back().push_back(random() % 256);
        row.push_back(scale * static_cast<int8_t>(stored.back().back()));
      }
      return;
    }
    const bool centred = format == WeightFormat::kQ4_0;
    if (!centred) add_half(minimum);
    uint32_t quants[32];
    for (uint32_t& quant : quants) {
      quant = random() % 16;
      row.push_back(centred ? scale * (static_cast<float>(quant) - 8.0f)
                            : scale * static_cast<float>(quant) + minimum);
    }
    for (int i = 0; i < 16; ++i) stored.back().push_back(quants[i] | quants[16 + i] << 4);
  }
};

}  // namespace ragcache::kernels
