#include "kernels/rope_kv_append/rope_kv_append.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/half/half.h"
#include "kernels/simd/avx2.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

constexpr int64_t kTaskTokens = 16;
constexpr int64_t kBlockTokens = KvLayout::kBlockTokens;

RAG_AVX2_INLINE void rotate(const float* head, const float* cosines, const float* sines,
                            int64_t half, int64_t i, __m256& first, __m256& second) {
  const __m256 a = _mm256_loadu_ps(head + i);
  const __m256 b = _mm256_loadu_ps(head + half + i);
  const __m256 cosine = _mm256_loadu_ps(cosines + i);
  const __m256 sine = _mm256_loadu_ps(sines + i);
  first = _mm256_fmsub_ps(a, cosine, _mm256_mul_ps(b, sine));
  second = _mm256_fmadd_ps(b, cosine, _mm256_mul_ps(a, sine));
}

template <class Element>
RAG_AVX2 void append_avx2(const RopeKvAppend& args, const RopeTable& table, int64_t token) {
  const KvLayout& layout = args.layout;
  const int64_t head_dim = layout.head_dim, half = head_dim / 2;
  auto* kv = static_cast<Element*>(args.kv);
  float* head = args.qkv + token * (args.n_heads + 2 * layout.n_kv_heads) * head_dim;
  const float* cosines = table.cosines(args.positions[token]);
  const float* sines = table.sines(args.positions[token]);
  __m256 first, second;
  for (int64_t h = 0; h < args.n_heads; ++h, head += head_dim) {
    for (int64_t i = 0; i < half; i += 8) {
      rotate(head, cosines, sines, half, i, first, second);
      _mm256_storeu_ps(head + i, first);
      _mm256_storeu_ps(head + half + i, second);
    }
  }
  const int64_t block = args.slots[token] / kBlockTokens;
  const int64_t offset = args.slots[token] % kBlockTokens;
  Element lanes[16];
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    Element* keys = kv + layout.key_tile(block, args.layer, h) + offset;
    for (int64_t i = 0; i < half; i += 8) {
      rotate(head, cosines, sines, half, i, first, second);
      store_lanes(lanes, first);
      store_lanes(lanes + 8, second);
      for (int64_t lane = 0; lane < 8; ++lane) {
        keys[(i + lane) * kBlockTokens] = lanes[lane];
        keys[(half + i + lane) * kBlockTokens] = lanes[8 + lane];
      }
    }
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    Element* values = kv + layout.value_tile(block, args.layer, h) + offset * head_dim;
    for (int64_t i = 0; i < head_dim; i += 8) store_lanes(values + i, load_lanes(head + i));
  }
}

template <class Element>
void append_reference(const RopeKvAppend& args, const RopeTable& table, int64_t token) {
  const KvLayout& layout = args.layout;
  const int64_t head_dim = layout.head_dim, half = head_dim / 2;
  auto* kv = static_cast<Element*>(args.kv);
  float* head = args.qkv + token * (args.n_heads + 2 * layout.n_kv_heads) * head_dim;
  const float* cosines = table.cosines(args.positions[token]);
  const float* sines = table.sines(args.positions[token]);
  const int64_t block = args.slots[token] / kBlockTokens;
  const int64_t offset = args.slots[token] % kBlockTokens;
  for (int64_t h = 0; h < args.n_heads; ++h, head += head_dim) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = head[i], b = head[half + i];
      head[i] = a * cosines[i] - b * sines[i];
      head[half + i] = b * cosines[i] + a * sines[i];
    }
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    Element* keys = kv + layout.key_tile(block, args.layer, h) + offset;
    for (int64_t i = 0; i < half; ++i) {
      const float a = head[i], b = head[half + i];
      narrow(a * cosines[i] - b * sines[i], keys[i * kBlockTokens]);
      narrow(b * cosines[i] + a * sines[i], keys[(half + i) * kBlockTokens]);
    }
  }
  for (int64_t h = 0; h < layout.n_kv_heads; ++h, head += head_dim) {
    Element* values = kv + layout.value_tile(block, args.layer, h) + offset * head_dim;
    for (int64_t i = 0; i < head_dim; ++i) narrow(head[i], values[i]);
  }
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
  RAG_CHECK(args.layout.head_dim == table.head_dim() && table.head_dim() % 16 == 0);
  RAG_CHECK(args.layer >= 0 && args.layer < args.layout.n_layers);
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    RAG_CHECK(args.positions[t] >= 0 && args.positions[t] < table.positions());
    RAG_CHECK(args.slots[t] >= 0);
  }
  const auto one_token = !has_avx2()                        ? rope_kv_append_reference
                         : args.layout.type == KvType::kF16 ? append_avx2<Half>
                                                            : append_avx2<float>;
  pool.run((args.n_tokens + kTaskTokens - 1) / kTaskTokens, [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * kTaskTokens, args.n_tokens);
    for (int64_t t = task * kTaskTokens; t < end; ++t) one_token(args, table, t);
  });
}

void rope_kv_append_reference(const RopeKvAppend& args, const RopeTable& table, int64_t token) {
  if (args.layout.type == KvType::kF16) {
    append_reference<Half>(args, table, token);
  } else {
    append_reference<float>(args, table, token);
  }
}

}  // namespace ragcache::kernels
