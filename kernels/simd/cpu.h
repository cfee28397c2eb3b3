#pragma once

namespace ragcache::kernels {

// Whether this processor runs the AVX2 versions of the kernels; else the references run.
inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}

}  // namespace ragcache::kernels
