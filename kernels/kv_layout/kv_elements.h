#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_layout/kv_layout.h"

namespace ragcache::kernels {

// One head's keys or values of one token in a pool, whatever the type of its elements; in plain
// loops, for references and tests. `slot` names the token (KvLayout).
struct KvPlace {
  int64_t layer;
  int64_t kv_head;
  int64_t slot;
};

// Rounds `elements` [head_dim] to the layout's type.
void write_key(const KvLayout& layout, void* pool, KvPlace place, std::span<const float> elements);
void write_value(const KvLayout& layout, void* pool, KvPlace place,
                 std::span<const float> elements);

// Fills `elements` [head_dim].
void read_key(const KvLayout& layout, const void* pool, KvPlace place, std::span<float> elements);
void read_value(const KvLayout& layout, const void* pool, KvPlace place, std::span<float> elements);

}  // namespace ragcache::kernels
