#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace ragcache::kernels {

// A buffer between two runs of a sentinel: an op that writes outside its output is caught.
template <class Element>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t size, Element fill = 0)
      : size_(size), values_(size + 2 * kGuard, kSentinel) {
    for (Element& element : std::span(values_).subspan(kGuard, size)) element = fill;
  }

  Element* data() { return values_.data() + kGuard; }
  const Element* data() const { return values_.data() + kGuard; }
  int64_t size() const { return size_; }
  Element& operator[](int64_t i) { return data()[i]; }
  Element operator[](int64_t i) const { return data()[i]; }

  void expect_intact(const char* what) const {
    for (int64_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(values_[i], kSentinel) << what << ": wrote before its start";
      ASSERT_EQ(values_[kGuard + size_ + i], kSentinel) << what << ": wrote past its end";
    }
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr auto kSentinel = static_cast<Element>(0xA5A5);

  int64_t size_;
  std::vector<Element> values_;
};

using Guarded = GuardedBuffer<float>;

inline void fill_normal(Guarded& buffer, std::mt19937& random, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  for (int64_t i = 0; i < buffer.size(); ++i) buffer[i] = normal(random);
}

inline void expect_close(const Guarded& actual, const Guarded& expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (int64_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1.0f + std::abs(expected[i])))
        << "at element " << i;
  }
}

// `other`: what else computed them.
inline void expect_same_bits(const Guarded& actual, const Guarded& expected, const char* other) {
  ASSERT_EQ(actual.size(), expected.size());
  for (int64_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << actual[i] << " at element " << i << ", with " << other << " " << expected[i];
  }
}

}  // namespace ragcache::kernels
