// How late the generator itself is, beside a server without a model that has the same cores:
//   loadgen_load_bench --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <vector>

#include "common/check.h"
#include "loadgen/load/load.h"
#include "loadgen/report/statistics.h"
#include "tests/fakes/fake_openai.h"

namespace ragcache::loadgen {
namespace {

constexpr int kSeconds = 10;

// As many streams at once as rate × seconds of a stream, each of 20 tokens.
void bm_load(benchmark::State& state) {
  const auto rate = static_cast<uint64_t>(state.range(0));
  const auto streams = static_cast<uint64_t>(state.range(1));
  const Duration stream = Duration(std::chrono::seconds(streams)) / rate;
  fakes::FakeStream answers{.tokens = 20};
  answers.first_token = answers.token_interval = stream / answers.tokens;
  fakes::FakeOpenAi server(answers);

  std::vector<Request> requests(rate * kSeconds);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].at = Duration(std::chrono::seconds(1)) * i / rate;
    requests[i].prompt = ChatPrompt{std::string(2000, 'x'), {}};
    requests[i].max_tokens = answers.tokens;
  }
  for (auto _ : state) {
    const absl::StatusOr<LoadResult> result = run_load({.url = server.url()}, requests, {});
    RAG_CHECK(result.ok() && result->status.ok());
    std::vector<double> late_ms, token_ms;
    double errors = 0;
    for (const Outcome& outcome : result->outcomes) {
      if (!outcome.error.empty()) ++errors;
      late_ms.push_back(to_seconds(outcome.sent - outcome.at) * 1e3);
      if (outcome.first_token) {
        token_ms.push_back(to_seconds(*outcome.first_token - outcome.at - answers.first_token) *
                           1e3);
      }
    }
    const Statistics late = statistics(std::move(late_ms));
    const Statistics token = statistics(std::move(token_ms));
    state.counters["errors"] = errors;
    state.counters["late_ms_p50"] = late.p50;
    state.counters["late_ms_p99"] = late.p99;
    state.counters["late_ms_max"] = late.max;
    // Of the server too: what a first token came later than its time.
    state.counters["token_late_ms_p50"] = token.p50;
    state.counters["token_late_ms_p99"] = token.p99;
  }
}
BENCHMARK(bm_load)
    ->ArgNames({"rate", "streams"})
    ->Args({100, 200})
    ->Args({1000, 2000})
    ->Iterations(1)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace ragcache::loadgen

BENCHMARK_MAIN();
