#pragma once

#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

// paged_prefix_attention() for processors with AVX2 and FMA, and for those with AVX-512
// (kernels/simd/cpu.h).
namespace ragcache::kernels {
namespace avx2 {
void paged_prefix_attention(const PagedPrefixAttention& args, const AttentionPlan& plan,
                            AttentionScratch& scratch, ThreadPool& pool);
}
namespace avx512 {
void paged_prefix_attention(const PagedPrefixAttention& args, const AttentionPlan& plan,
                            AttentionScratch& scratch, ThreadPool& pool);
}
}  // namespace ragcache::kernels
