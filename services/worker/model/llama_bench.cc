// Prefill and decode of one model beside what Torch's fp32 matrix products over the model's own
// shapes take on this machine. Usage: services_worker_model_bench MODEL.gguf [THREADS]
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr int64_t kMaxTokens = 2048;
constexpr int kRuns = 3;

using Run = std::function<void()>;

// Seconds of kRuns runs, shortest first.
struct Seconds {
  std::vector<double> sorted;
  double median() const { return sorted[sorted.size() / 2]; }
  double least() const { return sorted.front(); }
  double most() const { return sorted.back(); }
};

// Runs them by turns after a warm-up each, so that what disturbs the machine disturbs all alike.
std::vector<Seconds> measure(const std::vector<Run>& runs) {
  std::vector<Seconds> seconds(runs.size());
  for (const Run& run : runs) run();
  for (int round = 0; round < kRuns; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      runs[i]();
      seconds[i].sorted.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  for (Seconds& each : seconds) std::sort(each.sorted.begin(), each.sorted.end());
  return seconds;
}

// The matrix products of all layers for n tokens, and their operations.
std::pair<Run, double> torch_matmul(const ModelConfig& config, int64_t n_tokens) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {config.width, config.qkv_width()},
      {config.n_heads * config.head_dim, config.width},
      {config.width, 2 * config.feed_forward_width},
      {config.feed_forward_width, config.width}};
  std::vector<Run> products;
  double flops = 0;
  for (auto [in, out] : shapes) {
    at::Tensor x = at::randn({n_tokens, in}), w = at::randn({out, in}).t();
    at::Tensor y = at::empty({n_tokens, out});
    products.push_back([x, w, y]() mutable { at::mm_out(y, x, w); });
    flops += 2.0 * n_tokens * in * out * config.n_layers;
  }
  const Run run = [products, n_layers = config.n_layers] {
    for (int64_t l = 0; l < n_layers; ++l) {
      for (const Run& product : products) product();
    }
  };
  return {run, flops};
}

class Bench {
 public:
  Bench(LlamaWeights weights, kernels::ThreadPool& pool)
      : model_(std::move(weights), kMaxTokens, pool),
        blocks_(4 * kMaxTokens / kernels::KvLayout::kBlockTokens),
        kv_(blocks_ * model_.kv_layout().block_floats()),
        slots_(blocks_ * kernels::KvLayout::kBlockTokens) {
    std::iota(slots_.begin(), slots_.end(), 0);
    std::mt19937 random(1);
    for (uint32_t& token : tokens_) token = random() % model_.config().vocabulary;
  }

  // `n_tokens` after a cached prefix.
  Run prefill(int64_t n_tokens, int64_t prefix) {
    auto batch = std::make_shared<ForwardBatch>();
    batch->add(std::span(tokens_).first(n_tokens), std::span(slots_).first(prefix + n_tokens),
               true);
    return [this, batch] { model_.forward(*batch, kv_.data()); };
  }

  // One step of `sequences` answers, `context` tokens each.
  Run decode(int64_t sequences, int64_t context) {
    auto batch = std::make_shared<ForwardBatch>();
    for (int64_t s = 0; s < sequences; ++s) {
      batch->add(std::span(tokens_).subspan(s, 1), std::span(slots_).subspan(s * context, context),
                 true);
    }
    return [this, batch] { model_.forward(*batch, kv_.data()); };
  }

 private:
  LlamaModel model_;
  int64_t blocks_;
  std::vector<float> kv_;
  std::vector<int32_t> slots_;
  std::vector<uint32_t> tokens_ = std::vector<uint32_t>(kMaxTokens);
};

int run(const char* path, int threads) {
  auto file = GgufFile::open(path);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 2;
  }
  kernels::ThreadPool pool(threads);
  auto weights = load_llama_weights(**file, pool);
  if (!weights.ok()) {
    std::fprintf(stderr, "%s\n", weights.status().ToString().c_str());
    return 2;
  }
  const ModelConfig config = weights->config;
  at::set_num_threads(threads);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("%s, %d threads, median of %d by turns (least-most)\n", path, threads, kRuns);
  Bench bench(*std::move(weights), pool);
  for (int64_t n : {128, 512, 2048}) {
    const auto [matmul, flops] = torch_matmul(config, n);
    const auto seconds = measure({matmul, bench.prefill(n, 0)});
    const auto rate = [n](double s) { return static_cast<double>(n) / s; };
    std::printf(
        "prefill %4ld tokens: %.0f tokens/s (%.0f-%.0f); Torch's fp32 products alone %.0f "
        "(%.0f-%.0f), "
        "%.1f GFLOP/s; prefill runs at %.1f %% of them\n",
        n, rate(seconds[1].median()), rate(seconds[1].most()), rate(seconds[1].least()),
        rate(seconds[0].median()), rate(seconds[0].most()), rate(seconds[0].least()),
        flops / seconds[0].median() * 1e-9, 100 * seconds[0].median() / seconds[1].median());
  }
  const auto decode = measure({bench.decode(1, 512), bench.decode(8, 512)});
  for (size_t i = 0; const int sequences : {1, 8}) {
    const Seconds& step = decode[i++];
    std::printf("decode, batch %d, context 512: %.1f ms a step (%.1f-%.1f), %.1f tokens/s\n",
                sequences, step.median() * 1e3, step.least() * 1e3, step.most() * 1e3,
                sequences / step.median());
  }
  const auto hit = measure({bench.prefill(1540, 0), bench.prefill(40, 1500), bench.prefill(40, 0)});
  std::printf(
      "all of 1,540 tokens: %.0f ms (%.0f-%.0f); 40 after 1,500 cached: %.1f ms (%.1f-%.1f); 40 "
      "alone: %.1f ms (%.1f-%.1f)\n",
      hit[0].median() * 1e3, hit[0].least() * 1e3, hit[0].most() * 1e3, hit[1].median() * 1e3,
      hit[1].least() * 1e3, hit[1].most() * 1e3, hit[2].median() * 1e3, hit[2].least() * 1e3,
      hit[2].most() * 1e3);
  return 0;
}

}  // namespace
}  // namespace ragcache::worker

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "Usage: %s MODEL.gguf [THREADS]\n", argv[0]);
    return 2;
  }
  const int threads =
      argc == 3 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  if (threads < 1) {
    std::fprintf(stderr, "THREADS must be at least 1\n");
    return 2;
  }
  return ragcache::worker::run(argv[1], threads);
}
