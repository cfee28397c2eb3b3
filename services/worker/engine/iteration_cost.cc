#include "services/worker/engine/iteration_cost.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace ragcache::worker {
namespace {

constexpr size_t kWindow = 64;
// Units that make the three costs of one size, so that one ridge serves all.
constexpr double kTokens = 64;
constexpr double kPairs = 64 * 1024;
// Weight of the assumption "proportional to the tokens", as a share of one observation's.
constexpr double kRidge = 0.02;

constexpr double kMargin = 0.9;  // of the limit: what is measured scatters
constexpr double kLeastCaution = 0.25;
constexpr double kRecovery = 0.05;  // of the way back, with each iteration in time

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector features(const IterationCost::Work& work) {
  return {1, static_cast<double>(work.tokens) / kTokens, static_cast<double>(work.pairs) / kPairs};
}

double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// Gaussian elimination; the ridge keeps the matrix positive definite, so no pivoting is needed.
Vector solve(Matrix a, Vector b) {
  for (size_t i = 0; i < 3; ++i) {
    for (size_t row = i + 1; row < 3; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (size_t column = i; column < 3; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (size_t i = 3; i-- > 0;) {
    for (size_t column = i + 1; column < 3; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

void IterationCost::observe(const Work& work, double seconds, double limit) {
  RAG_CHECK(work.tokens > 0);
  if (seconds <= 0) return;
  caution_ = seconds > limit ? std::max(kLeastCaution, caution_ * limit / seconds)
                             : caution_ + kRecovery * (1 - caution_);
  window_.push_back({work, seconds});
  if (window_.size() > kWindow) window_.pop_front();
  refit();
}

void IterationCost::refit() {
  double tokens = 0;
  double seconds = 0;
  double weight = 0;
  for (const Observation& seen : window_) {
    tokens += static_cast<double>(seen.work.tokens);
    seconds += seen.seconds;
    weight += 1 / (seen.seconds * seen.seconds);
  }
  const Vector assumed = {0, seconds / tokens * kTokens, 0};
  const double ridge = kRidge * weight / static_cast<double>(window_.size());
  Matrix a{};
  Vector b{};
  for (size_t i = 0; i < 3; ++i) {
    a[i][i] = ridge;
    b[i] = ridge * assumed[i];
  }
  for (const Observation& seen : window_) {
    const Vector x = features(seen.work);
    const double inverse = 1 / (seen.seconds * seen.seconds);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) a[i][j] += x[i] * x[j] * inverse;
      b[i] += x[i] * seen.seconds * inverse;
    }
  }
  cost_ = solve(a, b);
  // No work takes less than no time; what noise made negative would break fit()'s search.
  for (double& cost : cost_) cost = std::max(cost, 0.0);
}

double IterationCost::predict(const Work& work) const { return dot(cost_, features(work)); }

size_t IterationCost::fit(const Work& work, size_t context, size_t wanted, double limit) const {
  if (window_.empty()) {
    return std::min(wanted, kFirstTokens - std::min(kFirstTokens, work.tokens));
  }
  const auto fits = [&](size_t count) {
    Work together = work;
    together.add(count, context);
    return predict(together) <= limit * kMargin * caution_;
  };
  if (fits(wanted)) return wanted;
  size_t some = 0;
  size_t too_many = (wanted + kGranule - 1) / kGranule;
  while (some + 1 < too_many) {
    const size_t middle = (some + too_many) / 2;
    (fits(middle * kGranule) ? some : too_many) = middle;
  }
  return some * kGranule;
}

}  // namespace ragcache::worker
