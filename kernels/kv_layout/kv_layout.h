#pragma once

#include <cstdint>

namespace ragcache::kernels {

// What the elements of keys and values are: binary32 or binary16.
enum class KvType { kF32, kF16 };

// Where a token's keys and values lie inside the pool of blocks.
//
// A block holds all layers of its tokens in one contiguous run:
//   [n_layers][keys of n_kv_heads tiles, then values of n_kv_heads tiles]
// A key tile is [head_dim][16 tokens], a value tile is [16 tokens][head_dim]: keys lie
// transposed, so that the product with the queries reads 16 neighbouring tokens in one load and
// needs no sum across lanes. Token `slot` is at offset `slot % 16` of block `slot / 16`.
//
// Offsets count elements of `type` from the start of the pool.
struct KvLayout {
  static constexpr int64_t kBlockTokens = 16;

  int64_t n_layers;
  int64_t n_kv_heads;
  int64_t head_dim;
  KvType type = KvType::kF32;

  int64_t tile_elements() const { return kBlockTokens * head_dim; }
  int64_t layer_elements() const { return 2 * n_kv_heads * tile_elements(); }
  int64_t block_elements() const { return n_layers * layer_elements(); }
  int64_t block_bytes() const { return block_elements() * (type == KvType::kF16 ? 2 : 4); }
  int64_t key_tile(int64_t block, int64_t layer, int64_t kv_head) const {
    return block * block_elements() + layer * layer_elements() + kv_head * tile_elements();
  }
  int64_t value_tile(int64_t block, int64_t layer, int64_t kv_head) const {
    return key_tile(block, layer, kv_head) + n_kv_heads * tile_elements();
  }
};

}  // namespace ragcache::kernels
