#pragma once

// Conversions between IEEE 754 binary16 and binary32, as the processor's F16C instructions make
// them.

#include <bit>
#include <cstdint>

namespace ragcache::kernels {

using Half = uint16_t;  // its bits

inline float from_half(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

// Rounds to the nearest, ties to even; what is too large becomes infinite.
inline Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;   // not a number
  if (magnitude >= 0x47800000) return sign | 0x7C00;  // from 2^16
  if (magnitude < 0x38800000) {
    // Below 2^-14 halves are 2^-24 apart, as floats are from 0.5 on: the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3F000000);
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
}

// For code that reads either kind of element.
inline float widen(float value) { return value; }
inline float widen(Half half) { return from_half(half); }

}  // namespace ragcache::kernels
