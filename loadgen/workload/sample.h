#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace ragcache::loadgen {

// Puts the values into an order that is the seed's alone: std::shuffle's differs between libraries.
template <typename T>
void shuffle(std::vector<T>& values, uint64_t seed) {
  std::mt19937_64 random(seed);
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
