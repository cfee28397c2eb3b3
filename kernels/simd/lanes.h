#pragma once

// 16 floats, for kernels that are written once and compiled for AVX2 and for AVX-512. A unit that
// defines RAG_SIMD_AVX512 first gets one register of AVX-512, any other two of AVX2; either way
// in a namespace of its own, RAG_SIMD_NAMESPACE, where the kernel belongs too, and with
// kTileRows × kTilePanels of 16: what a matrix product can keep of its sums in registers.
//
// Both do the same operations in the same order, so that a kernel's results have the same bits.

#ifdef RAG_SIMD_AVX512
#include "kernels/simd/lanes_avx512.h"
#else
#include "kernels/simd/lanes_avx2.h"
#endif

namespace ragcache::kernels::RAG_SIMD_NAMESPACE {

RAG_SIMD_INLINE Lanes magnitude(Lanes x) { return max(x, Lanes::zero() - x); }

// 2^x to about 2 ulp for x up to 127; 0 from -127 down, so that 2^-infinity is 0. Shorter than
// exp_lanes() in avx2.h: 2^x = 2^n · 2^r, n whole, r in [-1/2, 1/2], and Cephes' polynomial of
// exp2f for 2^r, which is exactly 1 for r = 0.
RAG_SIMD_INLINE Lanes exp2(Lanes x) {
  x = max(x, Lanes::all(-127.0f));
  const Lanes n = rounded(x);
  const Lanes r = x - n;
  Lanes p = Lanes::all(1.535336188319500e-4f);
  p = multiply_add(p, r, Lanes::all(1.339887440266574e-3f));
  p = multiply_add(p, r, Lanes::all(9.618437357674640e-3f));
  p = multiply_add(p, r, Lanes::all(5.550332471162809e-2f));
  p = multiply_add(p, r, Lanes::all(2.402264791363012e-1f));
  p = multiply_add(p, r, Lanes::all(6.931472028550421e-1f));
  p = multiply_add(p, r, Lanes::all(1.0f));
  return add_to_exponents(p, n);
}

}  // namespace ragcache::kernels::RAG_SIMD_NAMESPACE
