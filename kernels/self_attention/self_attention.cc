#include "kernels/self_attention/self_attention.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/self_attention/self_attention_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {

void self_attention(const SelfAttention& args, SelfAttentionScratch& scratch, ThreadPool& pool) {
  RAG_CHECK(args.query_key_value != nullptr && args.bias != nullptr && args.y != nullptr);
  RAG_CHECK(args.n_heads > 0 && args.head_dim > 0 && !args.begins.empty());
  RAG_CHECK(args.begins.front() == 0 && std::ranges::is_sorted(args.begins));
  if (has_avx512()) {
    avx512::self_attention(args, scratch, pool);
  } else if (has_avx2()) {
    avx2::self_attention(args, scratch, pool);
  } else {
    self_attention_reference(args);
  }
}

void self_attention_reference(const SelfAttention& args) {
  const int64_t width = args.n_heads * args.head_dim;
  const auto value = [&](int64_t token, int64_t part, int64_t element) {
    return double{args.query_key_value[(token * 3 + part) * width + element]} +
           args.bias[part * width + element];
  };
  std::vector<double> weights;
  for (size_t sequence = 0; sequence + 1 < args.begins.size(); ++sequence) {
    const int64_t begin = args.begins[sequence], end = args.begins[sequence + 1];
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t head = 0; head < args.n_heads; ++head) {
        const int64_t first = head * args.head_dim;
        weights.clear();
        for (int64_t other = begin; other < end; ++other) {
          double score = 0;
          for (int64_t d = first; d < first + args.head_dim; ++d) {
            score += value(token, 0, d) * value(other, 1, d);
          }
          weights.push_back(score / std::sqrt(static_cast<double>(args.head_dim)));
        }
        const double maximum = *std::ranges::max_element(weights);
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - maximum);
        for (int64_t d = first; d < first + args.head_dim; ++d) {
          double y = 0;
          for (int64_t other = begin; other < end; ++other) {
            y += weights[static_cast<size_t>(other - begin)] * value(other, 2, d);
          }
          args.y[token * width + d] = static_cast<float>(y / sum);
        }
      }
    }
  }
}

}  // namespace ragcache::kernels
