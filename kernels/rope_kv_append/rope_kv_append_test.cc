#include "kernels/rope_kv_append/rope_kv_append.h"

#include <algorithm>
#include <numeric>

#include "kernels/half/half.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

template <class Element>
void expect_agrees(KvType type, int64_t n_tokens, int64_t n_heads, int64_t n_kv_heads,
                   int64_t head_dim, const RopeTable& table) {
  SCOPED_TRACE(testing::Message() << (type == KvType::kF16 ? "fp16" : "fp32") << ", head_dim "
                                  << head_dim << ", heads " << n_heads << "/" << n_kv_heads
                                  << ", tokens " << n_tokens);
  std::mt19937 random(3);
  ThreadPool pool(3);
  constexpr int64_t kBlocks = 6;
  const KvLayout layout{2, n_kv_heads, head_dim, type};
  Guarded qkv(n_tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  fill_normal(qkv, random);
  Guarded expected_qkv = qkv;
  GuardedBuffer<Element> kv(kBlocks * layout.block_elements(), 123), expected_kv = kv;
  std::vector<int32_t> slots(kBlocks * KvLayout::kBlockTokens), positions(n_tokens);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  for (int32_t& position : positions) position = random() % table.positions();

  RopeKvAppend args{qkv.data(),   n_tokens,  n_heads, positions.data(),
                    slots.data(), kv.data(), layout,  1};
  rope_kv_append(args, table, pool);
  args.qkv = expected_qkv.data();
  args.kv = expected_kv.data();
  for (int64_t t = 0; t < n_tokens; ++t) rope_kv_append_reference(args, table, t);
  expect_close(qkv, expected_qkv, 1e-6f);
  qkv.expect_intact("qkv");
  kv.expect_intact("kv");
  // A last bit of fp32 may decide how a half is rounded.
  const float tolerance = type == KvType::kF16 ? 1e-3f : 1e-6f;
  for (int64_t i = 0; i < kv.size(); ++i) {
    const float expected = widen(expected_kv[i]);
    ASSERT_NEAR(widen(kv[i]), expected, tolerance * (1.0f + std::abs(expected))) << i;
  }
}

TEST(RopeKvAppend, AgreesWithTheReferenceAndWritesOnlyItsSlots) {
  for (int64_t head_dim : {16, 64, 80, 96, 128}) {
    const RopeTable table(300, head_dim, 10000.0);
    for (auto [n_heads, n_kv_heads] : {std::pair{1, 1}, {3, 1}, {8, 2}, {9, 3}}) {
      for (int64_t n_tokens : {1, 5, 17, 60}) {
        expect_agrees<float>(KvType::kF32, n_tokens, n_heads, n_kv_heads, head_dim, table);
        expect_agrees<Half>(KvType::kF16, n_tokens, n_heads, n_kv_heads, head_dim, table);
      }
    }
  }
}

// The product of a rotated query and key depends on the distance of their positions alone.
TEST(RopeKvAppend, KeepsProductsWhenBothPositionsShift) {
  std::mt19937 random(4);
  ThreadPool pool(1);
  constexpr int64_t kHeadDim = 64;
  const KvLayout layout{1, 1, kHeadDim};
  const RopeTable table(500, kHeadDim, 10000.0);
  Guarded input(3 * kHeadDim);
  fill_normal(input, random);
  std::vector<double> products;
  for (int32_t shift : {0, 1, 100, 480}) {
    std::vector<float> query(kHeadDim), key(kHeadDim);
    for (int32_t position : {shift + 7, shift}) {
      Guarded qkv = input;
      Guarded kv(layout.block_elements());
      const int32_t slot = 3;
      rope_kv_append({qkv.data(), 1, 1, &position, &slot, kv.data(), layout, 0}, table, pool);
      if (position != shift) std::copy_n(qkv.data(), kHeadDim, query.begin());
      for (int64_t d = 0; d < kHeadDim; ++d) key[d] = kv[d * KvLayout::kBlockTokens + slot];
    }
    products.push_back(std::inner_product(key.begin(), key.end(), query.begin(), 0.0));
  }
  for (double product : products) EXPECT_NEAR(product, products[0], 1e-3);
}

}  // namespace
}  // namespace ragcache::kernels
