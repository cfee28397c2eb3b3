#pragma once

#include "kernels/self_attention/self_attention.h"

namespace ragcache::kernels {

// self_attention() for processors with AVX2 and FMA.
void self_attention_avx2(const SelfAttention& args, SelfAttentionScratch& scratch,
                         ThreadPool& pool);

}  // namespace ragcache::kernels
