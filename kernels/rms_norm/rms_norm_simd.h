#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/rms_norm/rms_norm_versions.h"
#include "kernels/simd/lanes.h"

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {

RAG_SIMD void rms_norm_token(float* residual, const float* delta, const float* weight,
                             float epsilon, int64_t width, float* y) {
  Lanes squares = Lanes::zero();
  for (int64_t i = 0; i < width; i += 16) {
    const int64_t count = std::min<int64_t>(width - i, 16);
    Lanes value = Lanes::load_first(count, residual + i);
    if (delta != nullptr) {
      value = value + Lanes::load_first(count, delta + i);
      value.store_first(count, residual + i);
    }
    squares = multiply_add(value, value, squares);
  }
  const float mean = sum_of(squares) / static_cast<float>(width);
  const Lanes scale = Lanes::all(1.0f / std::sqrt(mean + epsilon));
  for (int64_t i = 0; i < width; i += 16) {
    const int64_t count = std::min<int64_t>(width - i, 16);
    const Lanes value = Lanes::load_first(count, residual + i) * scale;
    (value * Lanes::load_first(count, weight + i)).store_first(count, y + i);
  }
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
