#pragma once

namespace ragcache::kernels {

// How numbers are kept as bytes: number ≈ scale · byte, byte = number · inverse rounded to the
// nearest whole, the scale such that the largest becomes ±127. Numbers that are all smaller than
// 1e-30, whose inverse might overflow, become 0.
struct ByteScale {
  float scale;
  float inverse;
};

inline ByteScale byte_scale(float largest) {
  return {largest / 127.0f, largest > 1e-30f ? 127.0f / largest : 0.0f};
}

}  // namespace ragcache::kernels
