#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ragcache::kernels {

// What the elements of keys and values are: binary32, binary16, or bytes with a scale for each
// token and head.
enum class KvType { kF32, kF16, kI8 };
inline constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kI8};

// As options and reports call them.
inline constexpr std::string_view kKvTypeNames[] = {"fp32", "fp16", "int8"};

constexpr std::string_view name_of(KvType type) { return kKvTypeNames[static_cast<int>(type)]; }

constexpr std::optional<KvType> kv_type_named(std::string_view name) {
  for (const KvType type : kKvTypes) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

// Where a token's keys and values lie inside the pool of blocks.
//
// A block holds all layers of its tokens in one contiguous run:
//   [n_layers][keys of n_kv_heads tiles, then values of n_kv_heads tiles]
// A key tile is [head_dim][16 tokens], a value tile is [16 tokens][head_dim]: keys lie
// transposed, so that the product with the queries reads 16 neighbouring tokens in one load and
// needs no sum across lanes. Token `slot` is at offset `slot % 16` of block `slot / 16`.
//
// Tiles of bytes begin with the tokens' scales, [16] floats; an element is scale · byte. Bytes lie
// by fours, as the processor multiplies and adds them: keys [head_dim / 4][16 tokens][4 of the
// head's elements], values [16 tokens / 4][head_dim][4 tokens].
//
// Offsets count bytes from the start of the pool.
struct KvLayout {
  static constexpr int64_t kBlockTokens = 16;
  static constexpr int64_t kScaleBytes = kBlockTokens * sizeof(float);

  int64_t n_layers;
  int64_t n_kv_heads;
  int64_t head_dim;
  KvType type = KvType::kF32;

  int64_t element_bytes() const { return type == KvType::kF32 ? 4 : type == KvType::kF16 ? 2 : 1; }
  int64_t tile_bytes() const {
    return (type == KvType::kI8 ? kScaleBytes : 0) + kBlockTokens * head_dim * element_bytes();
  }
  int64_t layer_bytes() const { return 2 * n_kv_heads * tile_bytes(); }
  int64_t block_bytes() const { return n_layers * layer_bytes(); }
  int64_t key_tile(int64_t block, int64_t layer, int64_t kv_head) const {
    return block * block_bytes() + layer * layer_bytes() + kv_head * tile_bytes();
  }
  int64_t value_tile(int64_t block, int64_t layer, int64_t kv_head) const {
    return key_tile(block, layer, kv_head) + n_kv_heads * tile_bytes();
  }

  // From the start of a tile to element `d` of the token at `offset` of the block.
  int64_t key_element(int64_t offset, int64_t d) const {
    if (type != KvType::kI8) return (d * kBlockTokens + offset) * element_bytes();
    return kScaleBytes + d / 4 * (4 * kBlockTokens) + offset * 4 + d % 4;
  }
  int64_t value_element(int64_t offset, int64_t d) const {
    if (type != KvType::kI8) return (offset * head_dim + d) * element_bytes();
    return kScaleBytes + offset / 4 * (4 * head_dim) + d * 4 + offset % 4;
  }
};

}  // namespace ragcache::kernels
