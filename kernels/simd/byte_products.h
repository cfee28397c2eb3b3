#pragma once

// Products of bytes, 16 outputs at a time (kernels/simd/lanes.h):
//
//   Nibbles, SignedBytes   weights of 4 inputs × 16 outputs, 4 bytes a lane
//   PlainBytes             the same for inputs that are not negative
//   their Products         whole numbers that add(weights, bytes of 4 inputs) adds to; less(n) is
//                          what they are less n, as floats
//   SignedBytes::kOffset   what its bytes are above what they stand for
//   kByteRows              tokens of a tile
//   store_bytes()          whole numbers, as bytes

#include "kernels/half/half.h"
#include "kernels/simd/lanes.h"

#ifdef RAG_SIMD_AVX512
#include "kernels/simd/byte_products_avx512.h"
#else
#include "kernels/simd/byte_products_avx2.h"
#endif
