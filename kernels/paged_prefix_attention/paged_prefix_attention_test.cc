#include "kernels/paged_prefix_attention/paged_prefix_attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/kv_layout/kv_elements.h"
#include "kernels/paged_prefix_attention/paged_prefix_attention_versions.h"
#include "kernels/simd/cpu.h"
#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

constexpr int32_t kBlockTokens = KvLayout::kBlockTokens;

struct Sequence {
  std::vector<int32_t> runs;  // lengths of its segments, each of which starts on a fresh block
  int32_t queries;
};

// Slots of ragged sequences over shuffled blocks.
struct Slots {
  std::vector<int32_t> query_start{0}, context_start{0}, slots;
  int32_t blocks = 0;

  Slots(const std::vector<Sequence>& sequences, std::mt19937& random) {
    for (const Sequence& sequence : sequences) {
      for (int32_t run : sequence.runs) blocks += (run + kBlockTokens - 1) / kBlockTokens;
    }
    std::vector<int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    size_t next = 0;
    for (const Sequence& sequence : sequences) {
      for (int32_t run : sequence.runs) {
        for (int32_t i = 0; i < run; ++i) {
          if (i > 0 && i % kBlockTokens == 0) ++next;
          slots.push_back(order[next] * kBlockTokens + i % kBlockTokens);
        }
        ++next;
      }
      query_start.push_back(query_start.back() + sequence.queries);
      context_start.push_back(static_cast<int32_t>(slots.size()));
    }
  }

  AttentionBatch batch() const { return {query_start, context_start, slots}; }
};

using Pool = GuardedBuffer<uint8_t>;

// Keys and values of the slots' tokens in layer `layer`; what no token owns stays as it is.
void fill_tokens(Pool& pool, const KvLayout& layout, int64_t layer,
                 const std::vector<int32_t>& slots, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> key(layout.head_dim), value(layout.head_dim);
  for (int32_t slot : slots) {
    for (int64_t head = 0; head < layout.n_kv_heads; ++head) {
      for (float& x : key) x = 2.0f * normal(random);
      for (float& x : value) x = normal(random);
      write_key(layout, pool.data(), {layer, head, slot}, key);
      write_value(layout, pool.data(), {layer, head, slot}, value);
    }
  }
}

void expect_agrees(const std::vector<Sequence>& sequences, int64_t n_heads, int64_t n_kv_heads,
                   int64_t head_dim, int threads, KvType type) {
  SCOPED_TRACE(testing::Message() << "heads " << n_heads << "/" << n_kv_heads << ", head_dim "
                                  << head_dim << ", threads " << threads << ", " << name_of(type));
  std::mt19937 random(8);
  const Slots slots(sequences, random);
  const KvLayout layout{2, n_kv_heads, head_dim, type};
  const int64_t n_tokens = slots.query_start.back();
  const int64_t stride = (n_heads + 2 * n_kv_heads) * head_dim;
  Guarded queries(n_tokens * stride);
  fill_normal(queries, random);
  // All bits set are not-a-number: reading it into a result would show.
  Pool kv(slots.blocks * layout.block_bytes(), 0xFF);
  fill_tokens(kv, layout, 1, slots.slots, random);
  Guarded y(n_tokens * n_heads * head_dim, 55.0f), expected = y;
  ThreadPool pool(threads);
  const AttentionPlan plan(slots.batch(), n_heads, layout);
  PagedPrefixAttention args{queries.data(), stride, kv.data(), 1, y.data()};
  AttentionScratch scratch;
  paged_prefix_attention(args, plan, scratch, pool);
  args.y = expected.data();
  for (int64_t q = 0; q < n_tokens; ++q) paged_prefix_attention_reference(args, plan, q);
  // Bytes: of a few values of about 1 each a weight is off by up to 1/254, and by what the rounding
  // of the queries does to its score.
  expect_close(y, expected, type == KvType::kI8 ? 0.06f : 2e-5f);
  y.expect_intact("y");
  if (!has_avx512()) return;
  args.y = expected.data();
  avx2::paged_prefix_attention(args, plan, scratch, pool);
  expect_same_bits(y, expected, "AVX2");
}

TEST(PagedPrefixAttention, AgreesWithTheReferenceOverHeadsAndRaggedBatches) {
  const std::vector<std::vector<Sequence>> batches = {
      {{{1}, 1}},                                       // one token, nothing before it
      {{{37}, 37}},                                     // empty prefix, a tail
      {{{16, 16}, 32}, {{5, 40, 3}, 3}},                // prefill beside a partly cached prompt
      {{{300, 7, 1}, 1}, {{64}, 1}, {{1}, 1}},          // decodes of different lengths
      {{{100, 33, 50}, 60}, {{9}, 4}, {{17, 200}, 1}},  // queries that span segments
  };
  for (const auto& batch : batches) {
    for (int64_t head_dim : {64, 80, 96, 128}) {
      for (auto [n_heads, n_kv_heads] : {std::pair{2, 2}, {9, 3}, {8, 2}, {8, 1}}) {
        for (KvType type : kKvTypes) {
          expect_agrees(batch, n_heads, n_kv_heads, head_dim, 2, type);
        }
      }
    }
  }
}

TEST(PagedPrefixAttention, AgreesWhenALongContextIsSplitOverThreads) {
  for (int threads : {1, 2, 7}) {
    for (KvType type : kKvTypes) {
      expect_agrees({{{1500, 100, 31}, 1}}, 9, 3, 64, threads, type);
      expect_agrees({{{700, 5, 1200}, 40}}, 3, 1, 16, threads, type);
      expect_agrees({{{513}, 2}, {{2000}, 1}}, 4, 2, 32, threads, type);
    }
  }
}

TEST(PagedPrefixAttention, GivesAQueryTheSameBitsHoweverItsPromptIsCutAndWhoeverIsBesideIt) {
  std::mt19937 random(10);
  constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 32, kWidth = kHeads * kHeadDim;
  const std::vector<int32_t> runs = {40, 300, 5, 700, 33};
  const int32_t length = std::accumulate(runs.begin(), runs.end(), 0);
  const Slots slots({{runs, length}}, random);
  for (const KvType type : kKvTypes) {
    SCOPED_TRACE(name_of(type));
    const KvLayout layout{1, kKvHeads, kHeadDim, type};
    Pool kv(slots.blocks * layout.block_bytes(), 0xFF);
    fill_tokens(kv, layout, 0, slots.slots, random);
    Guarded queries(length * kWidth);
    fill_normal(queries, random);
    ThreadPool pool(3);
    AttentionScratch scratch;
    Guarded whole(length * kWidth), piece(length * kWidth);
    PagedPrefixAttention args{queries.data(), kWidth, kv.data(), 0, whole.data()};
    paged_prefix_attention(args, AttentionPlan(slots.batch(), kHeads, layout), scratch, pool);
    for (const int32_t step : {1, 7, 64, 500}) {
      for (int32_t begin = 0; begin < length; begin += step == 1 ? 89 : step) {
        const int32_t end = std::min(begin + step, length);
        // The same queries twice, the second time as a neighbour of themselves.
        const std::vector<int32_t> query_start{0, end - begin, 2 * (end - begin)};
        const std::vector<int32_t> context_start{0, end, 2 * end};
        std::vector<int32_t> context(slots.slots.begin(), slots.slots.begin() + end);
        context.insert(context.end(), slots.slots.begin(), slots.slots.begin() + end);
        const int64_t n = end - begin;
        std::vector<float> twice(queries.data() + begin * kWidth, queries.data() + end * kWidth);
        twice.insert(twice.end(), twice.begin(), twice.begin() + n * kWidth);
        std::vector<float> y(2 * n * kWidth);
        PagedPrefixAttention some{twice.data(), kWidth, args.kv, 0, y.data()};
        paged_prefix_attention(some,
                               AttentionPlan({query_start, context_start, context}, kHeads, layout),
                               scratch, pool);
        for (int64_t i = 0; i < 2 * n * kWidth; ++i) {
          ASSERT_EQ(y[i], whole[begin * kWidth + i % (n * kWidth)])
              << "queries " << begin << " to " << end << ", element " << i;
        }
      }
    }
  }
}

// Where queries, keys and values are whole numbers of a step and weights are all or nothing, as for
// keys that point with the query or against it, bytes hold everything.
TEST(PagedPrefixAttention, RoundsNothingThatBytesHold) {
  std::mt19937 random(12);
  constexpr int64_t kHeads = 3, kHeadDim = 32, kQueries = 20;
  const Slots slots({{{16, 40, 23, 100}, kQueries}}, random);
  const KvLayout layout{1, 1, kHeadDim, KvType::kI8};
  Pool kv(slots.blocks * layout.block_bytes(), 0xFF);
  const auto whole = [&](float step, std::vector<float>& to) {
    std::uniform_int_distribution<int> byte(-127, 127);
    for (float& x : to) x = step * static_cast<float>(byte(random));
    to[random() % to.size()] = step * 127;
  };
  std::vector<float> direction(kHeadDim), key(kHeadDim), value(kHeadDim);
  whole(0.5f, direction);
  for (int32_t slot : slots.slots) {
    const float sign = random() % 3 == 0 ? 1.0f : -1.0f;
    for (int64_t d = 0; d < kHeadDim; ++d) key[d] = sign * direction[d];
    whole(0.25f, value);
    write_key(layout, kv.data(), {0, 0, slot}, key);
    write_value(layout, kv.data(), {0, 0, slot}, value);
  }
  Guarded queries(kQueries * kHeads * kHeadDim);
  for (int64_t i = 0; i < queries.size(); ++i) queries[i] = 2.0f * direction[i % kHeadDim];
  Guarded y(queries.size()), expected = y;
  ThreadPool pool(1);
  AttentionScratch scratch;
  const AttentionPlan plan(slots.batch(), kHeads, layout);
  PagedPrefixAttention args{queries.data(), kHeads * kHeadDim, kv.data(), 0, y.data()};
  paged_prefix_attention(args, plan, scratch, pool);
  args.y = expected.data();
  for (int64_t q = 0; q < kQueries; ++q) paged_prefix_attention_reference(args, plan, q);
  expect_close(y, expected, 1e-5f);
}

TEST(AttentionPlan, CutsContextsWhereTheyAreLongSoThatFewQueriesOccupyThreads) {
  std::mt19937 random(9);
  const KvLayout layout{1, 3, 64};
  const Slots decode({{{4000}, 1}}, random);
  EXPECT_GE(AttentionPlan(decode.batch(), 9, layout).tasks().size(), 8u);
  const Slots brief({{{100}, 1}}, random);
  EXPECT_EQ(AttentionPlan(brief.batch(), 9, layout).merges().size(), 0u);
}

}  // namespace
}  // namespace ragcache::kernels
