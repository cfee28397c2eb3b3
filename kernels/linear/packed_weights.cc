#include "kernels/linear/packed_weights.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "common/check.h"
#include "kernels/half/half.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kPanel = PackedWeights::kPanel;
constexpr int64_t kQuantBlock = PackedWeights::kQuantBlock;
constexpr int64_t kWordNibbles = 8;
constexpr int64_t kWordBytes = 4;
constexpr size_t kAlignment = 64;

template <class T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void write(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// A block of a panel, and what one output of it takes in a file.
struct Geometry {
  int64_t inputs;
  int64_t halves;  // scale and minimum of an output, before the quantised values
  int64_t value_bits;

  int64_t stored_bytes() const { return 2 * halves + inputs * value_bits / 8; }
  int64_t block_bytes() const { return kPanel * stored_bytes(); }
  int64_t header_bytes() const { return kPanel * 2 * halves; }
};

Geometry geometry(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 0, 32};
    case WeightFormat::kF16:
      return {1, 0, 16};
    case WeightFormat::kQ8_0:
      return {kQuantBlock, 1, 8};
    case WeightFormat::kQ4_0:
      return {kQuantBlock, 1, 4};
    case WeightFormat::kQ4_1:
      return {kQuantBlock, 2, 4};
  }
  RAG_CHECK(false);
}

// One output's values of a block, between a file's order and a panel's.
void pack_nibbles(const uint8_t* stored, uint8_t* words, int64_t lane) {
  // A file's byte i has input i in its low nibble and input 16 + i in its high one.
  for (int64_t group = 0; group < kQuantBlock / kWordNibbles; ++group) {
    const auto input = [&](int64_t i) -> uint8_t {
      const uint8_t byte = stored[group % 2 * kWordNibbles + i];
      return group < 2 ? byte & 15 : byte >> 4;
    };
    uint8_t* word = words + (group * kPanel + lane) * kWordBytes;
    for (int64_t i = 0; i < kWordBytes; ++i) {
      word[i] = static_cast<uint8_t>(input(i) | input(i + kWordBytes) << 4);
    }
  }
}

float nibble(const uint8_t* words, int64_t lane, int64_t input) {
  const int64_t i = input % kWordNibbles;
  const uint8_t byte = words[(input / kWordNibbles * kPanel + lane) * kWordBytes + i % kWordBytes];
  return static_cast<float>(i < kWordBytes ? byte & 15 : byte >> 4);
}

// Where an output's byte for an input is.
int64_t byte_place(int64_t lane, int64_t input) {
  return (input / kWordBytes * kPanel + lane) * kWordBytes + input % kWordBytes;
}

}  // namespace

void PackedWeights::Free::operator()(uint8_t* data) const { std::free(data); }

PackedWeights::PackedWeights(int64_t out, int64_t in, WeightFormat format)
    : format_(format), out_(out), in_(in) {
  const Geometry block = geometry(format);
  RAG_CHECK(out > 0 && in > 0 && in % block.inputs == 0);
  panel_bytes_ = in / block.inputs * block.block_bytes();
  const size_t size = (static_cast<size_t>(bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size)));
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_.get() + (panels() - 1) * panel_bytes_, 0, static_cast<size_t>(panel_bytes_));
}

void PackedWeights::set_row(int64_t row, std::span<const float> values) {
  RAG_CHECK(format_ == WeightFormat::kF32);
  set_row(row, {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
}

void PackedWeights::set_row(int64_t row, std::span<const uint8_t> stored) {
  const Geometry shape = geometry(format_);
  const int64_t blocks = in_ / shape.inputs;
  RAG_CHECK(row >= 0 && row < out_);
  RAG_CHECK(static_cast<int64_t>(stored.size()) == blocks * shape.stored_bytes());
  const int64_t lane = row % kPanel;
  uint8_t* block = data_.get() + row / kPanel * panel_bytes_;
  const uint8_t* from = stored.data();
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t h = 0; h < shape.halves; ++h) {
      write(block + (h * kPanel + lane) * 2, read<uint16_t>(from + 2 * h));
    }
    const uint8_t* values = from + 2 * shape.halves;
    uint8_t* to = block + shape.header_bytes();
    switch (format_) {
      case WeightFormat::kF32:
        write(to + lane * 4, read<uint32_t>(values));
        break;
      case WeightFormat::kF16:
        write(to + lane * 2, read<uint16_t>(values));
        break;
      case WeightFormat::kQ8_0:
        for (int64_t i = 0; i < kQuantBlock; ++i) to[byte_place(lane, i)] = values[i];
        break;
      case WeightFormat::kQ4_0:
      case WeightFormat::kQ4_1:
        pack_nibbles(values, to, lane);
        break;
    }
    from += shape.stored_bytes();
    block += shape.block_bytes();
  }
}

void PackedWeights::get_row(int64_t row, std::span<float> values) const {
  RAG_CHECK(row >= 0 && row < out_ && static_cast<int64_t>(values.size()) == in_);
  const Geometry shape = geometry(format_);
  const int64_t lane = row % kPanel;
  const uint8_t* block = panel(row / kPanel);
  for (int64_t begin = 0; begin < in_; begin += shape.inputs, block += shape.block_bytes()) {
    const uint8_t* from = block + shape.header_bytes();
    float* to = values.data() + begin;
    switch (format_) {
      case WeightFormat::kF32:
        *to = read<float>(from + lane * 4);
        break;
      case WeightFormat::kF16:
        *to = from_half(read<uint16_t>(from + lane * 2));
        break;
      case WeightFormat::kQ8_0:
      case WeightFormat::kQ4_0:
      case WeightFormat::kQ4_1: {
        const StoredBlock stored = get_block(row, begin / kQuantBlock);
        for (int64_t i = 0; i < kQuantBlock; ++i) {
          to[i] = stored.scale * stored.quants[i] + stored.minimum;
        }
        break;
      }
    }
  }
}

PackedWeights::StoredBlock PackedWeights::get_block(int64_t row, int64_t block) const {
  RAG_CHECK(quantised() && row >= 0 && row < out_ && block >= 0 && block < in_ / kQuantBlock);
  const Geometry shape = geometry(format_);
  const int64_t lane = row % kPanel;
  const uint8_t* from = panel(row / kPanel) + block * shape.block_bytes();
  const auto half = [&](int64_t h) {
    return from_half(read<uint16_t>(from + (h * kPanel + lane) * 2));
  };
  const uint8_t* values = from + shape.header_bytes();
  StoredBlock stored{.scale = half(0), .minimum = 0, .quants = {}};
  if (format_ == WeightFormat::kQ4_1) stored.minimum = half(1);
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    if (format_ == WeightFormat::kQ8_0) {
      stored.quants[i] = static_cast<int8_t>(values[byte_place(lane, i)]);
    } else {
      stored.quants[i] = nibble(values, lane, i) - (format_ == WeightFormat::kQ4_0 ? 8.0f : 0.0f);
    }
  }
  return stored;
}

}  // namespace ragcache::kernels
