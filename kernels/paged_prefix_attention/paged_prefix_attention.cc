#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/kv_layout/kv_elements.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention_versions.h"
#include "kernels/simd/cpu.h"

namespace ragcache::kernels {
namespace {

// `slots`: the context tokens that the query sees.
void attend_one(const PagedPrefixAttention& args, const AttentionPlan& plan, int64_t query,
                int64_t head, std::span<const int32_t> slots) {
  const KvLayout& layout = plan.layout();
  const int64_t head_dim = layout.head_dim;
  const int64_t kv_head = head / (plan.n_heads() / layout.n_kv_heads);
  const float* q = args.queries + query * args.query_stride + head * head_dim;
  std::vector<float> elements(head_dim);
  std::vector<double> scores(slots.size());
  double highest = -INFINITY;
  for (size_t i = 0; i < slots.size(); ++i) {
    read_key(layout, args.kv, {args.layer, kv_head, slots[i]}, elements);
    double product = 0;
    for (int64_t d = 0; d < head_dim; ++d) product += double{q[d]} * elements[d];
    scores[i] = product / std::sqrt(static_cast<double>(head_dim));
    highest = std::max(highest, scores[i]);
  }
  double sum = 0;
  std::vector<double> mean(head_dim, 0.0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const double weight = std::exp(scores[i] - highest);
    read_value(layout, args.kv, {args.layer, kv_head, slots[i]}, elements);
    sum += weight;
    for (int64_t d = 0; d < head_dim; ++d) mean[d] += weight * elements[d];
  }
  float* y = args.y + (query * plan.n_heads() + head) * head_dim;
  for (int64_t d = 0; d < head_dim; ++d) y[d] = static_cast<float>(mean[d] / sum);
}

}  // namespace

void paged_prefix_attention(const PagedPrefixAttention& args, const AttentionPlan& plan,
                            AttentionScratch& scratch, ThreadPool& pool) {
  const KvLayout& layout = plan.layout();
  RAG_CHECK(args.queries != nullptr && args.kv != nullptr && args.y != nullptr);
  RAG_CHECK(args.layer >= 0 && args.layer < layout.n_layers);
  RAG_CHECK(layout.head_dim % 16 == 0 && args.query_stride >= plan.n_heads() * layout.head_dim);
  if (has_avx512()) return avx512::paged_prefix_attention(args, plan, scratch, pool);
  if (has_avx2()) return avx2::paged_prefix_attention(args, plan, scratch, pool);
  const int64_t n_tokens = plan.batch().query_start.back();
  pool.run(n_tokens,
           [&](int64_t query, int) { paged_prefix_attention_reference(args, plan, query); });
}

void paged_prefix_attention_reference(const PagedPrefixAttention& args, const AttentionPlan& plan,
                                      int64_t query) {
  const AttentionBatch batch = plan.batch();
  const auto next = std::upper_bound(batch.query_start.begin(), batch.query_start.end(), query);
  const int64_t s = next - batch.query_start.begin() - 1;
  const int64_t begin = batch.context_start[s];
  const int64_t unseen = *next - 1 - query;
  const auto seen = batch.slots.subspan(begin, batch.context_start[s + 1] - begin - unseen);
  for (int64_t head = 0; head < plan.n_heads(); ++head) attend_one(args, plan, query, head, seen);
}

}  // namespace ragcache::kernels
