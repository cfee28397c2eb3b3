// Whether a hit on the host is ever slower than no hit: the time to the first token of prompts
// whose prefix the host has, when it is loaded, when it is computed, and when the controller
// chooses by the times that the worker measured. At several lengths, and rates of copying: the
// arena's own, and throttled ones about the rate at which loading takes as long as computing.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model_files.h"
#include "common/status.h"
#include "services/controller/policy/prefill_cost.h"
#include "services/controller/schedule/load_or_compute.h"
#include "services/worker/engine/bench_engine.h"
#include "services/worker/profile/profiler.h"

namespace ragcache {
namespace {

using controller::PrefillCost;
using nlohmann::json;
using worker::BenchEngine;
using worker::Tier;

constexpr uint32_t kTail = 48;
constexpr uint32_t kRateBlocks = 180;    // copied to see how fast copies are: about 64 MiB
constexpr uint32_t kMiddlePrefix = 512;  // the break-even rate is that of this length

struct Options {
  std::string model;
  std::string profile =
      (std::filesystem::temp_directory_path() / "load_or_compute_profile.json").string();
  std::string json;
  int threads = kernels::ThreadPool::default_threads();
  int rounds = 5;
  std::vector<uint32_t> prefixes{16, 32, 64, 128, 256, 512, 1024, 2048};
  std::vector<double> rates{0, 4, 1.25, 1, 0.8};
};

enum Way { kLoad, kCompute, kChosen, kWays };
constexpr std::array<const char*, kWays> kWayNames{"load", "compute", "chosen"};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  double mib_s = 0;
  bool throttled = false;
  uint32_t prefix = 0;
  bool loads = false;  // what the controller chooses
  std::array<std::vector<double>, kWays> seconds;

  double ratio_to_compute() const { return median(seconds[kChosen]) / median(seconds[kCompute]); }
  double ratio_to_better() const {
    return median(seconds[kChosen]) / std::min(median(seconds[kLoad]), median(seconds[kCompute]));
  }
};

json to_json(const Result& result) {
  json ttft;
  for (size_t way = 0; way < kWays; ++way) {
    const auto& seconds = result.seconds[way];
    const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
    ttft[kWayNames[way]] = {
        {"median", median(seconds) * 1e3}, {"min", *least * 1e3}, {"max", *most * 1e3}};
  }
  return {{"copy_mib_s", result.mib_s},
          {"throttled", result.throttled},
          {"prefix_tokens", result.prefix},
          {"tail_tokens", kTail},
          {"choice", kWayNames[result.loads ? kLoad : kCompute]},
          {"ttft_ms", ttft},
          {"chosen_vs_compute", result.ratio_to_compute()},
          {"chosen_vs_better", result.ratio_to_better()}};
}

void print(const Result& result) {
  std::printf("%9.1f %6u %8s", result.mib_s, result.prefix, result.loads ? "load" : "compute");
  for (const auto& seconds : result.seconds) {
    const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
    std::printf("  %7.1f (%6.1f-%6.1f)", median(seconds) * 1e3, *least * 1e3, *most * 1e3);
  }
  std::printf("  %7.3f %7.3f\n", result.ratio_to_compute(), result.ratio_to_better());
  std::fflush(stdout);
}

// As a worker measures it for its controller.
absl::StatusOr<PrefillCost> profile(BenchEngine& bench, const Options& options) {
  worker::Profiler profiler(
      options.profile,
      {bench.model.fingerprint(),
       worker::machine_name(options.threads, "fp16", "fp32", BenchEngine::kMaxBatchTokens)},
      *std::max_element(options.prefixes.begin(), options.prefixes.end()) + kTail,
      [&bench](uint32_t cached, uint32_t fresh, const worker::Profiler::Answer& answer) {
        answer(bench.engine.time_prefill(cached, fresh));
      });
  absl::StatusOr<PrefillCost> cost = absl::InternalError("the profiler said nothing");
  profiler.profile(
      false, {.point =
                  [](size_t, uint32_t cached, uint32_t fresh, double seconds) {
                    std::fprintf(stderr, "T(%u, %u) = %.1f ms\n", cached, fresh, seconds * 1e3);
                    return true;
                  },
              .done =
                  [&cost](const worker::PrefillProfile& done) {
                    cost = PrefillCost::create(done.cached_tokens, done.new_tokens, done.seconds);
                  },
              .failed = [&cost](absl::Status status) { cost = std::move(status); }});
  return cost;
}

controller::HostHit host_hit(const worker::LlamaModel& model, uint32_t prefix) {
  return {.device_tokens = 0,
          .host_tokens = prefix,
          .new_tokens = kTail,
          .bytes = uint64_t{worker::blocks_of(prefix)} *
                   static_cast<uint64_t>(model.kv_layout().block_bytes())};
}

Result measure(BenchEngine& bench, uint32_t prefix, int rounds, bool loads) {
  Result result{.prefix = prefix, .loads = loads};
  const auto time = [&](Tier tier) {
    worker::Generate command = bench.make("r", prefix, kTail, 1);
    const SegmentId id = command.segments[0].id;
    command.segments[0].expected = tier;
    const double seconds = bench.time_to_token(std::move(command));
    bench.take(worker::Replicate{{id}});
    bench.settle();
    bench.take(worker::Drop{{id}, Tier::kDevice});
    return seconds;
  };
  time(Tier::kNone);  // puts it on the host
  time(Tier::kHost);  // touches the memory
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kWays; ++i) {
      const int way = (round + i) % kWays;
      const bool load = way == kLoad || (way == kChosen && loads);
      result.seconds[way].push_back(time(load ? Tier::kHost : Tier::kNone));
    }
  }
  return result;
}

absl::Status run(const Options& options) {
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(options.model));
  kernels::ThreadPool threads(options.threads);
  RAG_ASSIGN_OR_RETURN(worker::LlamaWeights weights, worker::load_llama_weights(*files, threads));
  worker::LlamaModel model(std::move(weights), BenchEngine::kMaxBatchTokens, threads,
                           kernels::KvType::kF16);
  std::optional<PrefillCost> cost;
  double own_rate;  // bytes a second
  {
    BenchEngine bench(model);
    RAG_ASSIGN_OR_RETURN(cost, profile(bench, options));
    worker::BlockPool pool = *worker::BlockPool::create(model.kv_layout(), kRateBlocks);
    own_rate = worker::measure_load_rate(model.kv_layout(), pool.memory(), pool.take(kRateBlocks),
                                         bench.arena, true);
  }
  const double break_even =
      static_cast<double>(host_hit(model, kMiddlePrefix).bytes) /
      (cost->seconds(0, kMiddlePrefix + kTail) - cost->seconds(kMiddlePrefix, kTail));

  std::printf("%9s %6s %8s", "MiB/s", "prefix", "choice");
  for (const char* way : kWayNames) std::printf("  %-23s", absl::StrCat(way, ", ms").c_str());
  std::printf("  %7s %7s\n", "chosen", "chosen");
  std::printf("%100s  %7s %7s\n", "", "/comp.", "/better");
  json report{{"threads", options.threads},
              {"rounds", options.rounds},
              {"arena_mib_s", own_rate / (1 << 20)},
              {"break_even_mib_s", break_even / (1 << 20)},
              {"runs", json::array()}};
  for (const double multiple : options.rates) {
    const double rate = multiple > 0 ? multiple * break_even : own_rate;
    BenchEngine::Options engine{.load_bytes_per_second = rate};
    if (multiple > 0) engine.throttle_mib_s = rate / (1 << 20);
    BenchEngine bench(model, engine);
    for (const uint32_t prefix : options.prefixes) {
      Result result = measure(bench, prefix, options.rounds,
                              controller::worth_loading(host_hit(model, prefix), rate, *cost));
      result.mib_s = rate / (1 << 20);
      result.throttled = multiple > 0;
      print(result);
      report["runs"].push_back(to_json(result));
    }
  }
  BenchEngine::remove_arena();
  if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace ragcache

int main(int argc, char** argv) {
  ragcache::Options options;
  CLI::App cli("Times hits on the host: loaded, computed, and as the controller chooses",
               "load_or_compute_bench");
  cli.add_option("model", options.model, "GGUF file or model folder")->required();
  cli.add_option("--threads", options.threads)->check(CLI::Range(1, 256))->capture_default_str();
  cli.add_option("--rounds", options.rounds, "of the three ways, by turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  cli.add_option("--prefixes", options.prefixes, "lengths in tokens, by commas")
      ->delimiter(',')
      ->check(CLI::Range(16, 4096))
      ->capture_default_str();
  cli.add_option("--rates", options.rates,
                 "of copying, as multiples of the break-even at 512 tokens, by commas; 0: the "
                 "arena's own")
      ->delimiter(',')
      ->capture_default_str();
  cli.add_option("--profile", options.profile, "where measured prefill times are kept")
      ->capture_default_str();
  cli.add_option("--json", options.json, "write the figures here");
  CLI11_PARSE(cli, argc, argv);
  const absl::Status status = ragcache::run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
