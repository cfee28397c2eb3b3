#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/workload/sample.h"

namespace ragcache::loadgen {

struct Workload;
struct WorkloadOptions;

struct ZipfOptions {
  double s = 1;  // the document of rank r is wanted in proportion to 1 / r^s
  uint32_t documents = 300;
  uint32_t top_k = 2;  // documents of a request, each another
  uint32_t min_tokens = 500;
  uint32_t max_tokens = 900;
  // Lengths are log-normal, with the bounds two deviations from the median, where those beyond are
  // put; else uniform.
  bool log_normal = true;
  uint32_t question_tokens = 32;
};

// Draws ranks from 0, one after another without those already drawn. Immutable.
class ZipfSampler {
 public:
  // REQUIRES: ranks > 0, s >= 0.
  ZipfSampler(uint32_t ranks, double s);

  // REQUIRES: count <= ranks.
  std::vector<uint32_t> draw(Random& random, uint32_t count) const;

 private:
  double weight(uint32_t rank) const { return ends_[rank] - start(rank); }
  double start(uint32_t rank) const { return rank == 0 ? 0 : ends_[rank - 1]; }

  std::vector<double> ends_;  // sums of the weights up to each rank
};

// As many requests as the options want, of documents that are substitutes.
absl::StatusOr<Workload> zipf_workload(const WorkloadOptions& options);

}  // namespace ragcache::loadgen
