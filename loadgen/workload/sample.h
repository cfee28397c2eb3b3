#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

namespace ragcache::loadgen {

// What is drawn from a seed is the same everywhere: the engine is the standard's, but its
// distributions, and std::shuffle, differ between libraries.
using Random = std::mt19937_64;

// In [0, 1).
inline double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

inline double exponential(Random& random, double mean) {
  return -mean * std::log1p(-uniform(random));
}

// Box and Muller's: mean 0, variance 1.
inline double normal(Random& random) {
  const double radius = std::sqrt(exponential(random, 2));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

// Puts the values into an order that is the seed's alone.
template <typename T>
void shuffle(std::vector<T>& values, uint64_t seed) {
  Random random(seed);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

// Keeps so many of the values, drawn by the seed, if there are more; 0 keeps all as they are.
template <typename T>
void sample(std::vector<T>& values, size_t count, uint64_t seed) {
  if (count == 0 || values.size() <= count) return;
  shuffle(values, seed);
  values.resize(count);
}

}  // namespace ragcache::loadgen
