// Speed of one model: prefill, decode and a prompt whose beginning is cached. Every figure is the
// median of --runs runs after a warm-up, with the least and the most; all cases take turns, so
// that what disturbs the machine disturbs all alike.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>

#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr int64_t kMaxTokens = 2048;
constexpr int64_t kDecodeContext = 512;
// One step is too short to be timed alone.
constexpr int kDecodeSteps = 16;

struct Options {
  std::string model;
  int threads = kernels::ThreadPool::default_threads();
  int runs = 5;
  kernels::KvType kv_type = kernels::KvType::kF16;
  Activations activations = Activations::kF32;
  std::string only;  // cases whose names hold it
  bool json = false;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Case {
  std::string name;
  int64_t tokens;  // that one run computes
  std::function<void()> run;
  std::vector<double> seconds;  // sorted

  double median() const { return seconds[seconds.size() / 2]; }
};

class Bench {
 public:
  Bench(LlamaWeights weights, kernels::ThreadPool& pool, const Options& options)
      : model_(std::move(weights), kMaxTokens, pool, options.kv_type, options.activations),
        slots_(8 * kDecodeContext + kMaxTokens),
        kv_(slots_.size() / kernels::KvLayout::kBlockTokens * model_.kv_layout().block_bytes()) {
    std::iota(slots_.begin(), slots_.end(), 0);
    std::mt19937 random(1);
    for (uint32_t& token : tokens_) token = random() % model_.config().vocabulary;
  }

  // `n_tokens` after a cached prefix.
  Case prefill(std::string name, int64_t n_tokens, int64_t prefix) {
    auto batch = std::make_shared<ForwardBatch>();
    batch->add(std::span(tokens_).first(n_tokens), std::span(slots_).first(prefix + n_tokens),
               true);
    return {std::move(name), n_tokens, [this, batch] { model_.forward(*batch, kv_.data()); }, {}};
  }

  // kDecodeSteps steps of `sequences` answers.
  Case decode(std::string name, int64_t sequences) {
    auto batch = std::make_shared<ForwardBatch>();
    for (int64_t s = 0; s < sequences; ++s) {
      batch->add(std::span(tokens_).subspan(s, 1),
                 std::span(slots_).subspan(s * kDecodeContext, kDecodeContext), true);
    }
    const auto run = [this, batch] {
      for (int step = 0; step < kDecodeSteps; ++step) model_.forward(*batch, kv_.data());
    };
    return {std::move(name), kDecodeSteps * sequences, run, {}};
  }

 private:
  LlamaModel model_;
  std::vector<int32_t> slots_;
  std::vector<uint8_t> kv_;
  std::vector<uint32_t> tokens_ = std::vector<uint32_t>(kMaxTokens);
};

void measure(std::vector<Case>& cases, int runs) {
  for (const Case& each : cases) each.run();
  for (int round = 0; round < runs; ++round) {
    for (Case& each : cases) {
      const auto start = std::chrono::steady_clock::now();
      each.run();
      each.seconds.push_back(seconds_since(start));
    }
  }
  for (Case& each : cases) std::sort(each.seconds.begin(), each.seconds.end());
}

void print_table(const std::vector<Case>& cases) {
  std::printf("| %-32s | %27s | %27s |\n|---|---|---|\n", "", "tokens/s", "ms");
  for (const Case& each : cases) {
    const auto tokens = static_cast<double>(each.tokens);
    std::printf("| %-32s | %7.1f (%7.1f - %7.1f) | %7.1f (%7.1f - %7.1f) |\n", each.name.c_str(),
                tokens / each.median(), tokens / each.seconds.back(), tokens / each.seconds.front(),
                each.median() * 1e3, each.seconds.front() * 1e3, each.seconds.back() * 1e3);
  }
}

void print_json(const std::vector<Case>& cases) {
  std::printf("\"cases\": [");
  for (size_t i = 0; i < cases.size(); ++i) {
    std::printf("%s\n  {\"name\": \"%s\", \"tokens\": %ld, \"seconds\": [", i > 0 ? "," : "",
                cases[i].name.c_str(), cases[i].tokens);
    for (size_t r = 0; r < cases[i].seconds.size(); ++r) {
      std::printf("%s%.6f", r > 0 ? ", " : "", cases[i].seconds[r]);
    }
    std::printf("]}");
  }
  std::printf("]}\n");
}

int run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  auto file = ModelFiles::open(options.model);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 2;
  }
  kernels::ThreadPool pool(options.threads);
  auto weights = load_llama_weights(**file, pool);
  if (!weights.ok()) {
    std::fprintf(stderr, "%s\n", weights.status().ToString().c_str());
    return 2;
  }
  const double load_seconds = seconds_since(start);
  // The mapped file counts, as long as it stays in memory.
  const double load_mib = resident_mib();
  const char* kv_dtype = kernels::name_of(options.kv_type).data();
  const char* activations = options.activations == Activations::kInt8 ? "int8" : "fp32";
  Bench bench(*std::move(weights), pool, options);
  std::vector<Case> cases;
  for (int64_t n : {128, 512, 2048}) {
    cases.push_back(bench.prefill("prefill of " + std::to_string(n), n, 0));
  }
  for (int64_t n : {1, 8}) {
    cases.push_back(bench.decode("decode at 512, batch of " + std::to_string(n), n));
  }
  cases.push_back(bench.prefill("40 tokens after 1500 cached", 40, 1500));
  cases.push_back(bench.prefill("40 tokens after none", 40, 0));
  std::erase_if(
      cases, [&](const Case& each) { return each.name.find(options.only) == std::string::npos; });
  measure(cases, options.runs);
  if (options.json) {
    std::printf(
        "{\"model\": \"%s\", \"threads\": %d, \"kv_dtype\": \"%s\", \"activations\": \"%s\", "
        "\"load_seconds\": %.3f, \"load_mib\": %.0f, ",
        options.model.c_str(), options.threads, kv_dtype, activations, load_seconds, load_mib);
    print_json(cases);
  } else {
    std::printf(
        "%s, %d threads, KV in %s, activations in %s; loaded in %.2f s, %.0f MiB resident; %d "
        "runs\n\n",
        options.model.c_str(), options.threads, kv_dtype, activations, load_seconds, load_mib,
        options.runs);
    print_table(cases);
  }
  return 0;
}

bool parse_count(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--json") {
      options.json = true;
    } else if (!name.starts_with("--") && options.model.empty()) {
      options.model = name;
    } else if (i + 1 == argc) {
      return false;
    } else if (const std::string_view value = argv[++i]; name == "--threads") {
      if (!parse_count(value, options.threads)) return false;
    } else if (name == "--runs") {
      if (!parse_count(value, options.runs)) return false;
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--kv-dtype" && kernels::kv_type_named(value).has_value()) {
      options.kv_type = *kernels::kv_type_named(value);
    } else if (name == "--activations" && (value == "fp32" || value == "int8")) {
      options.activations = value == "int8" ? Activations::kInt8 : Activations::kF32;
    } else {
      return false;
    }
  }
  return !options.model.empty();
}

}  // namespace
}  // namespace ragcache::worker

int main(int argc, char** argv) {
  ragcache::worker::Options options;
  if (!ragcache::worker::parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "Usage: %s MODEL.gguf [--threads N] [--runs N] [--kv-dtype fp32|fp16|int8] "
                 "[--activations fp32|int8] [--only TEXT] [--json]\n",
                 argv[0]);
    return 2;
  }
  return ragcache::worker::run(options);
}
