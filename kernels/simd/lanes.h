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
