#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace ragcache::kernels {

// How weights are stored. Quantised formats are GGUF's, in blocks of 32 inputs:
//   kQ8_0  scale · q, q in -128..127
//   kQ4_0  scale · (q - 8), q in 0..15
//   kQ4_1  scale · q + minimum, q in 0..15
// with scales and minima as halves.
enum class WeightFormat { kF32, kF16, kQ8_0, kQ4_0, kQ4_1 };

// Weights of a linear layer [out, in] in the order the kernel reads them: panels of 16 outputs,
// the last one filled up with zeros. A panel is cut along the inputs into blocks:
//   kF32   1 input:    [16] floats
//   kF16   1 input:    [16] halves
//   kQ8_0  32 inputs:  scales [16] halves; [8][16] words of 4 inputs' bytes, first input lowest
//   kQ4_0  32 inputs:  scales [16] halves; [4][16] words of 8 inputs' nibbles: of the word's bytes,
//                      lowest first, the low nibbles are inputs 0 to 3, the high ones 4 to 7
//   kQ4_1  32 inputs:  scales [16], minima [16] halves; the same words
// so that a vector register takes 8 or 16 outputs of one input, or 4 inputs as bytes. Movable;
// reading is thread safe.
class PackedWeights {
 public:
  static constexpr int64_t kPanel = 16;
  static constexpr int64_t kQuantBlock = 32;  // inputs

  // One output's block of a quantised format: scale · quant + minimum, where kQ4_0's quants are
  // already less 8 and only kQ4_1 has a minimum.
  struct StoredBlock {
    float scale;
    float minimum;
    std::array<float, kQuantBlock> quants;  // whole numbers
  };

  PackedWeights() = default;
  // REQUIRES: `in` is a multiple of 32 if the format is quantised.
  PackedWeights(int64_t out, int64_t in, WeightFormat format = WeightFormat::kF32);

  // Writes output row `row` from `values` [in]. REQUIRES: the format is kF32.
  void set_row(int64_t row, std::span<const float> values);
  // Writes output row `row` from its bytes in a GGUF file of this format.
  void set_row(int64_t row, std::span<const uint8_t> stored);
  // Reads output row `row` back: an embedding table tied to the head needs no second copy.
  void get_row(int64_t row, std::span<float> values) const;
  // REQUIRES: the format is quantised.
  StoredBlock get_block(int64_t row, int64_t block) const;

  WeightFormat format() const { return format_; }
  bool quantised() const { return format_ != WeightFormat::kF32 && format_ != WeightFormat::kF16; }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t panels() const { return (out_ + kPanel - 1) / kPanel; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t bytes() const { return panels() * panel_bytes_; }
  const uint8_t* panel(int64_t index) const { return data_.get() + index * panel_bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };

  WeightFormat format_ = WeightFormat::kF32;
  int64_t out_ = 0;
  int64_t in_ = 0;
  int64_t panel_bytes_ = 0;
  std::unique_ptr<uint8_t[], Free> data_;
};

}  // namespace ragcache::kernels
