// How long it takes to select vectors by their metadata, of 100,000 documents.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "common/strings.h"
#include "services/retrieval/filter/metadata_index.h"

namespace ragcache::retrieval {
namespace {

using Operator = Filter::Operator;

constexpr int64_t kDocuments = 100'000;

// A language of eight, a year of fifty, a time of its own, three tags of five hundred.
const MetadataIndex& corpus() {
  static const MetadataIndex& made = *[] {
    auto* index = new MetadataIndex();
    for (int64_t id = 1; id <= kDocuments; ++id) {
      const auto tag = [&](int64_t n) {
        return MetadataValue(str_cat("tag", (id * 7919 + n * 104729) % 500));
      };
      index->add(std::vector{id}, {{"lang", {str_cat("l", id % 8)}},
                                   {"tags", {tag(0), tag(1), tag(2)}},
                                   {"time", {static_cast<double>((id * 48271) % 1'000'003)}},
                                   {"year", {static_cast<double>(1970 + id % 50)}}});
    }
    return index;
  }();
  return made;
}

void select(benchmark::State& state, const Filter& filter) {
  const MetadataIndex& index = corpus();
  size_t size = 0;
  for (auto _ : state) size = index.select(filter)->size();
  state.counters["selected"] = static_cast<double>(size);
}

BENCHMARK_CAPTURE(select, one_tag, {{{"tags", Operator::kIn, {std::string("tag7")}}}});
BENCHMARK_CAPTURE(select, one_language, {{{"lang", Operator::kIn, {std::string("l3")}}}});
BENCHMARK_CAPTURE(select, not_one_language, {{{"lang", Operator::kNotIn, {std::string("l3")}}}});
BENCHMARK_CAPTURE(select, years, {{{"year", Operator::kGreaterOrEqual, {1995.0}}}});
BENCHMARK_CAPTURE(select, half_of_all_times, {{{"time", Operator::kLess, {500'000.0}}}});
BENCHMARK_CAPTURE(select, language_and_years,
                  {{{"lang", Operator::kIn, {std::string("l3")}},
                    {"year", Operator::kLess, {1995.0}}}});

}  // namespace
}  // namespace ragcache::retrieval

BENCHMARK_MAIN();
