#include "kernels/linear/linear.h"

#include "kernels/testing/guarded.h"

namespace ragcache::kernels {
namespace {

TEST(Linear, AgreesWithTheReferenceOverShapesAndTails) {
  std::mt19937 random(5);
  ThreadPool pool(3);
  for (int64_t in : {1, 9, 64, 288, 289, 700}) {
    for (int64_t out : {1, 8, 15, 16, 17, 200, 431}) {
      Guarded values(out * in);
      fill_normal(values, random);
      PackedWeights weights(out, in);
      for (int64_t row = 0; row < out; ++row) {
        weights.set_row(row, {values.data() + row * in, static_cast<size_t>(in)});
      }
      for (int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 97, 200}) {
        SCOPED_TRACE(testing::Message() << n_tokens << " tokens, " << in << " to " << out);
        Guarded x(n_tokens * in), y(n_tokens * out), expected(n_tokens * out);
        fill_normal(x, random);
        for (int64_t t = 0; t < n_tokens; ++t) {
          for (int64_t o = 0; o < out; ++o) {
            double sum = 0;
            for (int64_t i = 0; i < in; ++i) sum += double{x[t * in + i]} * values[o * in + i];
            expected[t * out + o] = static_cast<float>(sum);
          }
        }
        linear(x.data(), n_tokens, weights, y.data(), pool);
        expect_close(y, expected, 5e-5f);
        y.expect_intact("y");
        linear_reference(x.data(), n_tokens, weights, y.data());
        expect_close(y, expected, 5e-5f);
      }
    }
  }
}

TEST(Linear, GivesATokenTheSameBitsInEveryBatch) {
  std::mt19937 random(6);
  ThreadPool pool(2);
  constexpr int64_t kIn = 700, kOut = 431, kTokens = 103;
  PackedWeights weights(kOut, kIn);
  Guarded row(kIn), x(kTokens * kIn), all(kTokens * kOut), one(kOut);
  for (int64_t o = 0; o < kOut; ++o) {
    fill_normal(row, random);
    weights.set_row(o, {row.data(), kIn});
  }
  fill_normal(x, random);
  linear(x.data(), kTokens, weights, all.data(), pool);
  for (int64_t t = 0; t < kTokens; ++t) {
    linear(x.data() + t * kIn, 1, weights, one.data(), pool);
    for (int64_t o = 0; o < kOut; ++o) ASSERT_EQ(one[o], all[t * kOut + o]) << t << ", " << o;
  }
}

TEST(PackedWeights, GivesBackTheRowsItWasGiven) {
  std::mt19937 random(7);
  PackedWeights weights(35, 20);
  std::vector<Guarded> rows(35, Guarded(20));
  for (int64_t row = 34; row >= 0; --row) {
    fill_normal(rows[row], random);
    weights.set_row(row, {rows[row].data(), 20});
  }
  Guarded read(20);
  for (int64_t row = 0; row < 35; ++row) {
    weights.get_row(row, {read.data(), 20});
    expect_close(read, rows[row], 0.0f);
  }
}

}  // namespace
}  // namespace ragcache::kernels
