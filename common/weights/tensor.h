#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ragcache {

// ggml's element types that this project reads; the numbers are those of GGUF files
// (github.com/ggml-org/ggml, docs/gguf.md, enum ggml_type).
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kBf16 = 30
};

// A row of a tensor is whole blocks of so many elements in so many bytes.
struct BlockLayout {
  int64_t elements;
  int64_t bytes;
};

// Empty for types that this project does not read.
constexpr std::optional<BlockLayout> block_layout(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return BlockLayout{1, 4};
    case GgmlType::kF16:
    case GgmlType::kBf16:
      return BlockLayout{1, 2};
    case GgmlType::kQ4_0:
      return BlockLayout{32, 18};
    case GgmlType::kQ4_1:
      return BlockLayout{32, 20};
    case GgmlType::kQ5_0:
      return BlockLayout{32, 22};
    case GgmlType::kQ5_1:
      return BlockLayout{32, 24};
    case GgmlType::kQ8_0:
      return BlockLayout{32, 34};
    case GgmlType::kQ2K:
      return BlockLayout{256, 84};
    case GgmlType::kQ3K:
      return BlockLayout{256, 110};
    case GgmlType::kQ4K:
      return BlockLayout{256, 144};
    case GgmlType::kQ5K:
      return BlockLayout{256, 176};
    case GgmlType::kQ6K:
      return BlockLayout{256, 210};
  }
  return std::nullopt;
}

// One tensor, pointing into a mapped file. Dimensions come innermost first, as GGUF has them: a
// linear layer's weight [out, in] reads {in, out}. Nothing aligns `data`: copy out, do not cast.
struct Tensor {
  std::string name;
  GgmlType type;
  std::vector<uint64_t> dimensions;
  std::span<const uint8_t> data;

  uint64_t element_count() const {
    uint64_t count = 1;
    for (const uint64_t dimension : dimensions) count *= dimension;
    return count;
  }
};

}  // namespace ragcache
