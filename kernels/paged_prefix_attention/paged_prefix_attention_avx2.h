#pragma once

#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

namespace ragcache::kernels {

// paged_prefix_attention() for processors with AVX2 and FMA.
void paged_prefix_attention_avx2(const PagedPrefixAttention& args, const AttentionPlan& plan,
                                 AttentionScratch& scratch, ThreadPool& pool);

}  // namespace ragcache::kernels
