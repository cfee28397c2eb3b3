#pragma once

#include "kernels/self_attention/self_attention.h"

// self_attention() for processors with AVX2 and FMA, and for those with AVX-512
// (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void self_attention(const SelfAttention& args, SelfAttentionScratch& scratch, ThreadPool& pool);
}
namespace avx512 {
void self_attention(const SelfAttention& args, SelfAttentionScratch& scratch, ThreadPool& pool);
}
}  // namespace ragcache::kernels
