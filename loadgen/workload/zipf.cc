#include "loadgen/workload/zipf.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/substitute_text.h"
#include "loadgen/workload/workload.h"

namespace ragcache::loadgen {
namespace {

constexpr uint32_t kDocumentsMax = 1'000'000;
constexpr uint32_t kTokensMax = 1 << 16;
constexpr uint32_t kTopKMax = 64;
constexpr uint64_t kAllTokensMax = 100'000'000;
constexpr double kExponentMax = 10;

absl::Status check(const WorkloadOptions& options) {
  const ZipfOptions& zipf = options.zipf;
  if (options.max_requests == 0) {
    return absl::InvalidArgumentError("max_requests: must be at least 1 for zipf");
  }
  if (!(zipf.s >= 0 && zipf.s <= kExponentMax)) {
    return absl::InvalidArgumentError(
        str_cat("zipf.s: is ", zipf.s, ", must be from 0 to ", kExponentMax));
  }
  if (zipf.documents < 1 || zipf.documents > kDocumentsMax) {
    return absl::InvalidArgumentError(
        str_cat("zipf.documents: is ", zipf.documents, ", must be from 1 to ", kDocumentsMax));
  }
  if (zipf.top_k < 1 || zipf.top_k > std::min(zipf.documents, kTopKMax)) {
    return absl::InvalidArgumentError(str_cat("zipf.top_k: is ", zipf.top_k, ", must be from 1 to ",
                                              std::min(zipf.documents, kTopKMax)));
  }
  if (zipf.min_tokens < 1 || zipf.max_tokens > kTokensMax || zipf.min_tokens > zipf.max_tokens) {
    return absl::InvalidArgumentError(str_cat("zipf.min_tokens, zipf.max_tokens: are ",
                                              zipf.min_tokens, " and ", zipf.max_tokens,
                                              ", must be ascending from 1 to ", kTokensMax));
  }
  if (zipf.question_tokens < 1 || zipf.question_tokens > kTokensMax) {
    return absl::InvalidArgumentError(str_cat("zipf.question_tokens: is ", zipf.question_tokens,
                                              ", must be from 1 to ", kTokensMax));
  }
  if (uint64_t{zipf.documents} * zipf.max_tokens + options.max_requests * zipf.question_tokens >
      kAllTokensMax) {
    return absl::InvalidArgumentError(
        str_cat("zipf: documents and questions have more than ", kAllTokensMax, " tokens"));
  }
  return absl::OkStatus();
}

uint32_t draw_length(const ZipfOptions& zipf, Random& random) {
  const double min = zipf.min_tokens;
  const double max = zipf.max_tokens;
  if (!zipf.log_normal) {
    return zipf.min_tokens + static_cast<uint32_t>(uniform(random) * (max - min + 1));
  }
  const double deviation = std::log(max / min) / 4;
  const double length = std::sqrt(min * max) * std::exp(deviation * normal(random));
  return static_cast<uint32_t>(std::lround(std::clamp(length, min, max)));
}

}  // namespace

ZipfSampler::ZipfSampler(uint32_t ranks, double s) {
  RAG_CHECK(ranks > 0 && s >= 0);
  double sum = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) ends_.push_back(sum += std::pow(rank + 1.0, -s));
}

std::vector<uint32_t> ZipfSampler::draw(Random& random, uint32_t count) const {
  RAG_CHECK(count <= ends_.size());
  std::vector<uint32_t> drawn;
  std::vector<uint32_t> ascending;
  double left = ends_.back();
  while (drawn.size() < count) {
    // A point of the line of weights from which those already drawn were cut out.
    double point = uniform(random) * left;
    for (const uint32_t rank : ascending) {
      if (point >= start(rank)) point += weight(rank);
    }
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), point);
    auto rank = static_cast<uint32_t>(std::min(end, ends_.end() - 1) - ends_.begin());
    // Rounding may lead onto one of them, where weights are small beside their sum.
    auto place = std::lower_bound(ascending.begin(), ascending.end(), rank);
    while (place != ascending.end() && *place == rank) {
      rank = static_cast<uint32_t>((rank + 1) % ends_.size());
      place = std::lower_bound(ascending.begin(), ascending.end(), rank);
    }
    left -= weight(rank);
    ascending.insert(place, rank);
    drawn.push_back(rank);
  }
  return drawn;
}

absl::StatusOr<Workload> zipf_workload(const WorkloadOptions& options) {
  RAG_RETURN_IF_ERROR(check(options));
  const ZipfOptions& zipf = options.zipf;
  RAG_ASSIGN_OR_RETURN(const SubstituteText substitutes,
                       SubstituteText::create(options.count_tokens));
  Random random(options.seed);
  Workload workload{.name = options.name, .substituted = true};
  for (uint32_t i = 0; i < zipf.documents; ++i) {
    workload.documents.push_back(
        substitutes.document(str_cat("zipf/", i), draw_length(zipf, random)));
  }
  const ZipfSampler ranks(zipf.documents, zipf.s);
  for (uint64_t i = 0; i < options.max_requests; ++i) {
    WorkloadRequest& request = workload.requests.emplace_back();
    request.documents = ranks.draw(random, zipf.top_k);
    request.question = substitutes.text(str_cat("zipf/question/", i), zipf.question_tokens);
    request.max_tokens = options.max_tokens > 0 ? options.max_tokens : kAnswerTokens;
  }
  return workload;
}

}  // namespace ragcache::loadgen
