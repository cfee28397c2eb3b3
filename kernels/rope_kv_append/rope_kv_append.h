#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_layout/kv_layout.h"
#include "kernels/parallel/thread_pool.h"

namespace ragcache::kernels {

// Cosines and sines of every position (Su et al., RoFormer, eq. 34). Element i of a head rotates
// with element i + head_dim/2, the half-split form. Immutable.
class RopeTable {
 public:
  // `factors` [head_dim / 2] divide the frequencies; empty: nothing does.
  RopeTable(int64_t positions, int64_t head_dim, double base, std::span<const float> factors = {});

  int64_t positions() const { return positions_; }
  int64_t head_dim() const { return head_dim_; }
  const float* cosines(int64_t position) const { return table_.data() + position * head_dim_; }
  const float* sines(int64_t position) const { return cosines(position) + head_dim_ / 2; }

 private:
  int64_t positions_;
  int64_t head_dim_;
  std::vector<float> table_;  // [positions, 2, head_dim/2]
};

struct RopeKvAppend {
  float* qkv;  // [n_tokens, n_heads + 2·n_kv_heads, head_dim]: queries, keys, values
  int64_t n_tokens;
  int64_t n_heads;
  const int32_t* positions;  // [n_tokens]
  const int32_t* slots;      // [n_tokens], all different
  void* kv;                  // the pool, of elements of layout.type
  KvLayout layout;
  int64_t layer;
};

// Rotates the queries in place, and writes the rotated keys and the values of each token into its
// slot of the pool. Keys in `qkv` are left as they were. Queries and keys that meet as bytes are
// mixed first, which leaves their products as they are and makes rounding finer.
// REQUIRES: head_dim is a multiple of 16 up to 512, positions lie in the table.
void rope_kv_append(const RopeKvAppend& args, const RopeTable& table, ThreadPool& pool);

// The same in plain loops, one token.
void rope_kv_append_reference(const RopeKvAppend& args, const RopeTable& table, int64_t token);

}  // namespace ragcache::kernels
