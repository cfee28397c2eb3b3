#include "kernels/rope_kv_append/rope_kv_append.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/check.h"
#include "kernels/half/byte_scale.h"
#include "kernels/half/half.h"
#include "kernels/kv_layout/kv_elements.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 16;
constexpr int64_t kBlockTokens = KvLayout::kBlockTokens;
constexpr int64_t kMaxHeadDim = 512;

RAG_AVX2_INLINE void rotate_head(float* head, const float* cosines, const float* sines,
                                 int64_t half, float* to) {
  for (int64_t i = 0; i < half; i += 8) {
    const __m256 a = _mm256_loadu_ps(head + i);
    const __m256 b = _mm256_loadu_ps(head + half + i);
    const __m256 cosine = _mm256_loadu_ps(cosines + i);
    const __m256 sine = _mm256_loadu_ps(sines + i);
    _mm256_storeu_ps(to + i, _mm256_fmsub_ps(a, cosine, _mm256_mul_ps(b, sine)));
    _mm256_storeu_ps(to + half + i, _mm256_fmadd_ps(b, cosine, _mm256_mul_ps(a, sine)));
  }
}

// Elements that meet in a butterfly are whole registers apart.
constexpr int64_t kSpreadStep = 8;

// Of how many elements spread() mixes each.
int64_t spread_of(int64_t head_dim) {
  const int64_t steps = head_dim / kSpreadStep;
  return steps & -steps;
}

// Walsh–Hadamard transforms of elements kSpreadStep apart: products of two heads become
// spread_of() times as large, and what one element had above all others is shared out, so that a
// scale of the head suits all of them (Ashkboos et al., QuaRot). Has the caller's instructions.
__attribute__((always_inline)) inline void spread(float* head, int64_t head_dim) {
  const int64_t span = kSpreadStep * spread_of(head_dim);
  for (int64_t half = kSpreadStep; half < span; half *= 2) {
    for (int64_t pair = 0; pair < head_dim; pair += 2 * half) {
      for (int64_t i = pair; i < pair + half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a + b;
        head[half + i] = a - b;
      }
    }
  }
}

__attribute__((always_inline)) inline void spread_query(float* head, int64_t head_dim) {
  spread(head, head_dim);
  const float share = 1.0f / static_cast<float>(spread_of(head_dim));  // a power of two
  for (int64_t i = 0; i < head_dim; ++i) head[i] *= share;
}

// Into a transposed tile: elements lie a block's tokens apart.
template <class Element>
RAG_AVX2_INLINE void store_key(const float* key, int64_t head_dim, int64_t offset, uint8_t* tile) {
  auto* to = reinterpret_cast<Element*>(tile) + offset;
  Element lanes[8];
  for (int64_t i = 0; i < head_dim; i += 8) {
    store_lanes(lanes, load_lanes(key + i));
    for (int64_t lane = 0; lane < 8; ++lane) to[(i + lane) * kBlockTokens] = lanes[lane];
  }
}

template <class Element>
RAG_AVX2_INLINE void store_value(const float* value, int64_t head_dim, int64_t offset,
                                 uint8_t* tile) {
  auto* to = reinterpret_cast<Element*>(tile) + offset * head_dim;
  for (int64_t i = 0; i < head_dim; i += 8) store_lanes(to + i, load_lanes(value + i));
}

// Rounds a head's elements; returns their scale.
RAG_AVX2_INLINE float round_to_bytes(const float* head, int64_t head_dim, int8_t* bytes) {
  __m256 largest = _mm256_setzero_ps();
  for (int64_t i = 0; i < head_dim; i += 8) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), load_lanes(head + i));
    largest = _mm256_max_ps(largest, magnitude);
  }
  const auto [scale, inverse] = byte_scale(max_lanes(largest));
  for (int64_t i = 0; i < head_dim; i += 8) {
    const __m256i whole =
        _mm256_cvtps_epi32(_mm256_mul_ps(load_lanes(head + i), _mm256_set1_ps(inverse)));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes + i), _mm_packs_epi16(words, words));
  }
  return scale;
}

template <>
RAG_AVX2_INLINE void store_key<int8_t>(const float* key, int64_t head_dim, int64_t offset,
                                       uint8_t* tile) {
  int8_t bytes[kMaxHeadDim];
  reinterpret_cast<float*>(tile)[offset] = round_to_bytes(key, head_dim, bytes);
  uint8_t* to = tile + KvLayout::kScaleBytes + 4 * offset;
  for (int64_t i = 0; i < head_dim; i += 4) std::memcpy(to + i * kBlockTokens, bytes + i, 4);
}

template <>
RAG_AVX2_INLINE void store_value<int8_t>(const float* value, int64_t head_dim, int64_t offset,
                                         uint8_t* tile) {
  int8_t bytes[kMaxHeadDim];
  reinterpret_cast<float*>(tile)[offset] = round_to_bytes(value, head_dim, bytes);
  auto* to = reinterpret_cast<int8_t*>(tile) + KvLayout::kScaleBytes + offset / 4 * (4 * head_dim) +
             offset % 4;
  for (int64_t i = 0; i < head_dim; ++i) to[4 * i] = bytes[i];
}

template <class Element>
RAG_AVX2 void append_avx2(const RopeKvAppend& args, const RopeTable& table, int64_t token) {
  constexpr bool kSpread = std::is_same_v<Element, int8_t>;
  const KvLayout& layout = args.layout;
  const int64_t head_dim = layout.head_dim, half = head_dim / 2;
  auto* kv = static_cast<uint8_t*>(args.kv);
  float* head = args.qkv + token * (args.n_heads + 2 * layout.n_kv_heads) * head_dim;
  const float* cosines = table.cosines(args.positions[token]);
  const float* sines = table.sines(args.positions[token]);
  for (int64_t h = 0; h < args.n_heads; ++h, head += head_dim) {
    rotate_head(head, cosines, sines, half, head);
    if (kSpread) spread_query(head, head_dim);
  }
  const int64_t block = args.slots[token] / kBlockTokens;
  const int64_t offset = args.slots[token] % kBlockTokens;
  float key[kMaxHeadDim];
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    rotate_head(head, cosines, sines, half, key);
    if (kSpread) spread(key, head_dim);
    store_key<Element>(key, head_dim, offset, kv + layout.key_tile(block, args.layer, h));
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    store_value<Element>(head, head_dim, offset, kv + layout.value_tile(block, args.layer, h));
  }
}

using AppendToken = void (*)(const RopeKvAppend& args, const RopeTable& table, int64_t token);

AppendToken append_avx2_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return append_avx2<float>;
    case KvType::kF16:
      return append_avx2<Half>;
    case KvType::kI8:
      return append_avx2<int8_t>;
  }
  RAG_CHECK(false);
}

}  // namespace

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double base,
                     std::span<const float> factors)
    : positions_(positions), head_dim_(head_dim), table_(positions * head_dim) {
  RAG_CHECK(positions > 0 && head_dim > 0 && head_dim % 2 == 0 && base > 1.0);
  const int64_t half = head_dim / 2;
  RAG_CHECK(factors.empty() || static_cast<int64_t>(factors.size()) == half);
  for (int64_t i = 0; i < half; ++i) {
    // Frequencies are rounded to float as the reference implementations round them.
    const float frequency = static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) /
                                                                  static_cast<double>(head_dim))) /
                            (factors.empty() ? 1.0f : factors[i]);
    for (int64_t position = 0; position < positions; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      table_[position * head_dim + i] = std::cos(angle);
      table_[position * head_dim + half + i] = std::sin(angle);
    }
  }
}

void rope_kv_append(const RopeKvAppend& args, const RopeTable& table, ThreadPool& pool) {
  RAG_CHECK(args.qkv != nullptr && args.kv != nullptr && args.n_tokens >= 0);
  RAG_CHECK(args.layout.head_dim == table.head_dim() && table.head_dim() % 16 == 0 &&
            table.head_dim() <= kMaxHeadDim);
  RAG_CHECK(args.layer >= 0 && args.layer < args.layout.n_layers);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    RAG_CHECK(args.positions[t] >= 0 && args.positions[t] < table.positions());
    RAG_CHECK(args.slots[t] >= 0);
  }
  const AppendToken one_token =
      has_avx2() ? append_avx2_of(args.layout.type) : rope_kv_append_reference;
  pool.run((args.n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, args.n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) one_token(args, table, t);
  });
}

void rope_kv_append_reference(const RopeKvAppend& args, const RopeTable& table, int64_t token) {
  const KvLayout& layout = args.layout;
  const int64_t head_dim = layout.head_dim, half = head_dim / 2;
  float* head = args.qkv + token * (args.n_heads + 2 * layout.n_kv_heads) * head_dim;
  const float* cosines = table.cosines(args.positions[token]);
  const float* sines = table.sines(args.positions[token]);
  const bool spreads = layout.type == KvType::kI8;
  std::vector<float> rotated(head_dim);
  const auto rotate_head = [&] {
    for (int64_t i = 0; i < half; ++i) {
      const float a = head[i], b = head[half + i];
      rotated[i] = a * cosines[i] - b * sines[i];
      rotated[half + i] = b * cosines[i] + a * sines[i];
    }
  };
  for (int64_t h = 0; h < args.n_heads; ++h, head += head_dim) {
    rotate_head();
    if (spreads) spread_query(rotated.data(), head_dim);
    std::copy(rotated.begin(), rotated.end(), head);
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    rotate_head();
    if (spreads) spread(rotated.data(), head_dim);
    write_key(layout, args.kv, {args.layer, h, args.slots[token]}, rotated);
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    write_value(layout, args.kv, {args.layer, h, args.slots[token]},
                std::span<const float>(head, head_dim));
  }
}

}  // namespace ragcache::kernels
