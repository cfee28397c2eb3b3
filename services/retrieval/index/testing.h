#pragma once

// What tests and benches of the index have in common: vectors like those of texts, which lie in
// clusters, and the plain truth about them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "services/retrieval/index/make_index.h"
#include "services/retrieval/index/trained_state.h"

namespace ragcache::retrieval {

// Unit vectors around random centres.
class ClusteredVectors {
 public:
  ClusteredVectors(uint32_t dimension, size_t n_centres, float spread, uint64_t seed)
      : dimension_(dimension), spread_(spread), random_(seed) {
    for (size_t i = 0; i < n_centres; ++i) centres_.push_back(around({}, 1));
  }

  std::vector<float> next() { return around(centres_[random_() % centres_.size()], spread_); }

 private:
  std::vector<float> around(const std::vector<float>& centre, float spread) {
    std::normal_distribution<float> normal(0, spread / std::sqrt(static_cast<float>(dimension_)));
    std::vector<float> vector(dimension_);
    float square = 0;
    for (uint32_t i = 0; i < dimension_; ++i) {
      vector[i] = (centre.empty() ? 0 : centre[i]) + normal(random_);
      square += vector[i] * vector[i];
    }
    for (float& x : vector) x /= std::sqrt(square);
    return vector;
  }

  const uint32_t dimension_;
  const float spread_;
  std::mt19937_64 random_;
  std::vector<std::vector<float>> centres_;
};

// The vectors that an index should have, searched by plain loops.
class VectorModel {
 public:
  void put(int64_t id, std::vector<float> vector) { vectors_[id] = std::move(vector); }
  bool erase(int64_t id) { return vectors_.erase(id) > 0; }
  bool contains(int64_t id) const { return vectors_.contains(id); }
  size_t size() const { return vectors_.size(); }
  const std::vector<float>& at(int64_t id) const { return vectors_.at(id); }

  std::vector<int64_t> ids() const {
    std::vector<int64_t> ids;
    for (const auto& [id, vector] : vectors_) ids.push_back(id);
    return ids;
  }

  double score(std::span<const float> query, int64_t id) const {
    const std::vector<float>& vector = vectors_.at(id);
    double score = 0;
    for (size_t i = 0; i < vector.size(); ++i) score += double{query[i]} * vector[i];
    return score;
  }

  // The k best; ties by id.
  std::vector<int64_t> search(std::span<const float> query, size_t k,
                              const IdFilter* filter = nullptr) const {
    std::vector<std::pair<double, int64_t>> scored;
    for (const auto& [id, vector] : vectors_) {
      if (filter == nullptr || filter->allows(id)) scored.push_back({-score(query, id), id});
    }
    std::ranges::sort(scored);
    std::vector<int64_t> ids;
    for (size_t i = 0; i < std::min(k, scored.size()); ++i) ids.push_back(scored[i].second);
    return ids;
  }

  // What the size of the model calls for; empty if that is no training.
  std::string train(const IndexOptions& options) const {
    const TrainingPlan plan = plan_training(options, size(), nullptr);
    if (plan.lists == 0) return {};
    std::vector<float> sample;
    for (const auto& [id, vector] : vectors_) {
      sample.insert(sample.end(), vector.begin(), vector.end());
    }
    return train_index(options, plan, sample, {}, {}).value();
  }

  // An index of all vectors.
  std::unique_ptr<VectorIndex> index(const IndexOptions& options,
                                     const std::string& trained) const {
    auto index = make_index(options, trained).value();
    for (const auto& [id, vector] : vectors_) {
      if (!index->add(std::span(&id, 1), vector).ok()) std::abort();
    }
    return index;
  }

 private:
  std::map<int64_t, std::vector<float>> vectors_;
};

}  // namespace ragcache::retrieval
