#include "kernels/self_attention/self_attention.h"

#include "kernels/self_attention/self_attention_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(SelfAttention, AgreesWithTheReferenceOverShapesAndLengths) {
  std::mt19937 random(3);
  ThreadPool pool(3);
  SelfAttentionScratch scratch;
  for (const auto& [n_heads, head_dim] :
       {std::pair<int64_t, int64_t>{1, 1}, {2, 20}, {12, 32}, {3, 64}, {2, 100}}) {
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{1}, {17, 0, 1, 5, 6, 7}, {256, 3, 100}}) {
      std::vector<int64_t> begins = {0};
      for (const int64_t length : lengths) begins.push_back(begins.back() + length);
      const int64_t n_tokens = begins.back(), width = n_heads * head_dim;
      SCOPED_TRACE(testing::Message()
                   << n_heads << " heads of " << head_dim << ", " << n_tokens << " tokens");
      Guarded qkv(n_tokens * 3 * width), bias(3 * width), y(n_tokens * width);
      Guarded expected(n_tokens * width);
      fill_normal(qkv, random);
      fill_normal(bias, random);
      SelfAttention args = {.query_key_value = qkv.data(),
                            .bias = bias.data(),
                            .begins = begins,
                            .n_heads = n_heads,
                            .head_dim = head_dim,
                            .y = expected.data()};
      self_attention_reference(args);
      args.y = y.data();
      self_attention(args, scratch, pool);
      expect_close(y, expected, 1e-5f);
      y.expect_intact("y");
      if (!has_avx512()) continue;
      args.y = expected.data();
      avx2::self_attention(args, scratch, pool);
      expect_same_bits(y, expected, "AVX2");
    }
  }
}

TEST(SelfAttention, GivesASequenceTheSameBitsInEveryBatch) {
  std::mt19937 random(8);
  ThreadPool pool(2);
  SelfAttentionScratch scratch;
  constexpr int64_t kHeads = 4, kHeadDim = 32, kWidth = kHeads * kHeadDim;
  const std::vector<int64_t> begins = {0, 40, 53, 200};
  Guarded qkv(200 * 3 * kWidth), bias(3 * kWidth), all(200 * kWidth), one(200 * kWidth);
  fill_normal(qkv, random);
  SelfAttention args = {.query_key_value = qkv.data(),
                        .bias = bias.data(),
                        .begins = begins,
                        .n_heads = kHeads,
                        .head_dim = kHeadDim,
                        .y = all.data()};
  self_attention(args, scratch, pool);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const std::vector<int64_t> alone = {0, begins[i + 1] - begins[i]};
    args.query_key_value = qkv.data() + begins[i] * 3 * kWidth;
    args.begins = alone;
    args.y = one.data();
    self_attention(args, scratch, pool);
    for (int64_t j = 0; j < alone[1] * kWidth; ++j) {
      ASSERT_EQ(one[j], all[begins[i] * kWidth + j]) << "sequence " << i << ", element " << j;
    }
  }
}

}  // namespace
}  // namespace ragcache::kernels
