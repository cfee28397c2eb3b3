#include "kernels/kv_layout/kv_elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "kernels/half/byte_scale.h"
#include "kernels/half/half.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kBlockTokens = KvLayout::kBlockTokens;

using ElementOffset = int64_t (KvLayout::*)(int64_t offset, int64_t d) const;

template <class T>
void put(uint8_t* to, T x) {
  std::memcpy(to, &x, sizeof(x));
}

template <class T>
T get(const uint8_t* from) {
  T x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

void write(const KvLayout& layout, void* pool, int64_t tile, int64_t slot, ElementOffset offset_of,
           std::span<const float> elements) {
  RAG_CHECK(static_cast<int64_t>(elements.size()) == layout.head_dim);
  uint8_t* const to = static_cast<uint8_t*>(pool) + tile;
  const int64_t offset = slot % kBlockTokens;
  float largest = 0;
  for (const float x : elements) largest = std::max(largest, std::abs(x));
  const auto [scale, inverse] = byte_scale(largest);
  if (layout.type == KvType::kI8) put(to + offset * sizeof(float), scale);
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    uint8_t* const element = to + (layout.*offset_of)(offset, d);
    switch (layout.type) {
      case KvType::kF32:
        put(element, elements[d]);
        break;
      case KvType::kF16:
        put(element, to_half(elements[d]));
        break;
      case KvType::kI8:
        put(element, static_cast<int8_t>(std::nearbyint(elements[d] * inverse)));
        break;
    }
  }
}

void read(const KvLayout& layout, const void* pool, int64_t tile, int64_t slot,
          ElementOffset offset_of, std::span<float> elements) {
  RAG_CHECK(static_cast<int64_t>(elements.size()) == layout.head_dim);
  const uint8_t* const from = static_cast<const uint8_t*>(pool) + tile;
  const int64_t offset = slot % kBlockTokens;
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    const uint8_t* const element = from + (layout.*offset_of)(offset, d);
    switch (layout.type) {
      case KvType::kF32:
        elements[d] = get<float>(element);
        break;
      case KvType::kF16:
        elements[d] = from_half(get<Half>(element));
        break;
      case KvType::kI8:
        elements[d] = get<float>(from + offset * sizeof(float)) * get<int8_t>(element);
        break;
    }
  }
}

int64_t key_tile(const KvLayout& layout, KvPlace place) {
  return layout.key_tile(place.slot / kBlockTokens, place.layer, place.kv_head);
}
int64_t value_tile(const KvLayout& layout, KvPlace place) {
  return layout.value_tile(place.slot / kBlockTokens, place.layer, place.kv_head);
}

}  // namespace

void write_key(const KvLayout& layout, void* pool, KvPlace place, std::span<const float> elements) {
  write(layout, pool, key_tile(layout, place), place.slot, &KvLayout::key_element, elements);
}

void write_value(const KvLayout& layout, void* pool, KvPlace place,
                 std::span<const float> elements) {
  write(layout, pool, value_tile(layout, place), place.slot, &KvLayout::value_element, elements);
}

void read_key(const KvLayout& layout, const void* pool, KvPlace place, std::span<float> elements) {
  read(layout, pool, key_tile(layout, place), place.slot, &KvLayout::key_element, elements);
}

void read_value(const KvLayout& layout, const void* pool, KvPlace place,
                std::span<float> elements) {
  read(layout, pool, value_tile(layout, place), place.slot, &KvLayout::value_element, elements);
}

}  // namespace ragcache::kernels
