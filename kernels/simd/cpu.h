#pragma once

namespace ragcache::kernels {

// Whether this processor runs the AVX2 versions of the kernels; else the references run.
inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}

// Whether it runs the AVX-512 versions of those that have one: from Intel's Cascade Lake and AMD's
// Zen 4 on.
inline bool has_avx512() {
  static const bool has =
      has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni");
  return has;
}

}  // namespace ragcache::kernels
