#include "kernels/rope_kv_append/rope_kv_append.h"

#include <algorithm>
#include <numeric>

#include "kernels/kv_layout/kv_elements.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

void expect_agrees(KvType type, int64_t n_tokens, int64_t n_heads, int64_t n_kv_heads,
                   int64_t head_dim, const RopeTable& table) {
  SCOPED_TRACE(testing::Message() << name_of(type) << ", head_dim " << head_dim << ", heads "
                                  << n_heads << "/" << n_kv_heads << ", tokens " << n_tokens);
  std::mt19937 random(3);
  ThreadPool pool(3);
  constexpr int64_t kBlocks = 6;
  const KvLayout layout{2, n_kv_heads, head_dim, type};
  Guarded qkv(n_tokens * (n_heads + 2 * n_kv_heads) * head_dim);
  fill_normal(qkv, random);
  Guarded expected_qkv = qkv;
  GuardedBuffer<uint8_t> kv(kBlocks * layout.block_bytes(), 123), expected_kv = kv;
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
  // A last bit of fp32 may decide how a half or a byte is rounded.
  const float tolerance = type == KvType::kF32 ? 1e-6f : type == KvType::kF16 ? 1e-3f : 0.04f;
  std::vector<float> elements(head_dim), expected(head_dim);
  const auto compare = [&](const auto& read, int64_t layer, int64_t head, int64_t slot) {
    read(layout, kv.data(), KvPlace{layer, head, slot}, elements);
    read(layout, expected_kv.data(), KvPlace{layer, head, slot}, expected);
    for (int64_t d = 0; d < head_dim; ++d) {
      ASSERT_NEAR(elements[d], expected[d], tolerance * (1.0f + std::abs(expected[d])))
          << "layer " << layer << ", head " << head << ", slot " << slot << ", element " << d;
    }
  };
  for (int32_t slot = 0; slot < kBlocks * KvLayout::kBlockTokens; ++slot) {
    for (int64_t head = 0; head < n_kv_heads; ++head) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        compare(read_key, layer, head, slot);
        compare(read_value, layer, head, slot);
      }
    }
  }
}

TEST(RopeKvAppend, AgreesWithTheReferenceAndWritesOnlyItsSlots) {
  for (int64_t head_dim : {16, 64, 80, 96, 128}) {
    const RopeTable table(300, head_dim, 10000.0);
    for (auto [n_heads, n_kv_heads] : {std::pair{1, 1}, {3, 1}, {8, 2}, {9, 3}}) {
      for (int64_t n_tokens : {1, 5, 17, 60}) {
        for (KvType type : kKvTypes) {
          expect_agrees(type, n_tokens, n_heads, n_kv_heads, head_dim, table);
        }
      }
    }
  }
}

// Independent of where elements lie: what is read is what was written, to half a step of its type.
TEST(KvElements, AreReadAsTheyWereWrittenWhoeverIsBesideThem) {
  std::mt19937 random(5);
  constexpr int64_t kHeadDim = 32, kHeads = 2, kLayers = 2, kSlots = 48;
  for (const KvType type : kKvTypes) {
    const KvLayout layout{kLayers, kHeads, kHeadDim, type};
    std::vector<uint8_t> pool(kSlots / KvLayout::kBlockTokens * layout.block_bytes());
    Guarded written(2 * kLayers * kHeads * kSlots * kHeadDim);
    fill_normal(written, random);
    std::vector<float> elements(kHeadDim);
    const auto each = [&](const auto& visit) {
      int64_t next = 0;
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        for (int64_t head = 0; head < kHeads; ++head) {
          for (int64_t slot = 0; slot < kSlots; ++slot, next += 2 * kHeadDim) {
            visit(KvPlace{layer, head, slot}, std::span<const float>(&written[next], kHeadDim),
                  std::span<const float>(&written[next + kHeadDim], kHeadDim));
          }
        }
      }
    };
    each([&](KvPlace place, auto key, auto value) {
      write_key(layout, pool.data(), place, key);
      write_value(layout, pool.data(), place, value);
    });
    const auto expect_near = [&](std::span<const float> expected) {
      float largest = 0;
      for (const float x : expected) largest = std::max(largest, std::abs(x));
      const float step = type == KvType::kF32   ? 0.0f
                         : type == KvType::kF16 ? largest / 2048
                                                : largest / 254 * 1.0001f;
      for (int64_t d = 0; d < kHeadDim; ++d) ASSERT_NEAR(elements[d], expected[d], step) << d;
    };
    each([&](KvPlace place, auto key, auto value) {
      read_key(layout, pool.data(), place, elements);
      expect_near(key);
      read_value(layout, pool.data(), place, elements);
      expect_near(value);
    });
  }
}

// The product of a rotated query and key depends on the distance of their positions alone, whatever
// the keys are kept in.
TEST(RopeKvAppend, KeepsProductsWhenBothPositionsShift) {
  std::mt19937 random(4);
  ThreadPool pool(1);
  constexpr int64_t kHeadDim = 64;
  const RopeTable table(500, kHeadDim, 10000.0);
  Guarded input(3 * kHeadDim);
  fill_normal(input, random);
  std::vector<double> products;
  for (auto [type, shift] : {std::pair{KvType::kF32, 0},
                             {KvType::kF32, 1},
                             {KvType::kF32, 100},
                             {KvType::kF32, 480},
                             {KvType::kI8, 0},
                             {KvType::kI8, 480}}) {
    const KvLayout layout{1, 1, kHeadDim, type};
    std::vector<float> query(kHeadDim), key(kHeadDim);
    for (int32_t position : {shift + 7, shift}) {
      Guarded qkv = input;
      std::vector<uint8_t> kv(layout.block_bytes());
      const int32_t slot = 3;
      rope_kv_append({qkv.data(), 1, 1, &position, &slot, kv.data(), layout, 0}, table, pool);
      if (position != shift) std::copy_n(qkv.data(), kHeadDim, query.begin());
      read_key(layout, kv.data(), {0, 0, slot}, key);
    }
    products.push_back(std::inner_product(key.begin(), key.end(), query.begin(), 0.0));
  }
  // A key in bytes is off by up to half a step an element, a step being a 127th of the largest.
  for (size_t i = 0; i < products.size(); ++i) {
    EXPECT_NEAR(products[i], products[0], i < 4 ? 1e-3 : 0.3) << i;
  }
}

}  // namespace
}  // namespace ragcache::kernels
