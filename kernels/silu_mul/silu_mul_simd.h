#pragma once

#include <algorithm>
#include <numbers>

#include "kernels/silu_mul/silu_mul_versions.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {

RAG_SIMD void silu_mul_token(const float* gate_up, int64_t width, float* y) {
  const Lanes minus_log2e = Lanes::all(-std::numbers::log2e_v<float>);
  for (int64_t i = 0; i < width; i += 16) {
    const int64_t count = std::min<int64_t>(width - i, 16);
    const Lanes gate = Lanes::load_first(count, gate_up + i);
    const Lanes up = Lanes::load_first(count, gate_up + width + i);
    // e^-gate; above 2^127 the sigmoid is as good as 0.
    const Lanes power = exp2(min(gate * minus_log2e, Lanes::all(127.0f)));
    (gate / (Lanes::all(1.0f) + power) * up).store_first(count, y + i);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
