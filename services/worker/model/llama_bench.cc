// Prefill and decode of one model beside what Torch's fp32 matrix products over the model's own
// shapes take on this machine. Usage: services_worker_model_bench MODEL.gguf [THREADS]
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr int64_t kMaxTokens = 2048;
constexpr int kRuns = 5;

// The shortest of kRuns runs after a warm-up: what the machine can do between disturbances.
double best_seconds(const std::function<void()>& run) {
  run();
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Seconds that the matrix products of all layers take for n tokens, and their operations.
std::pair<double, double> torch_matmul(const ModelConfig& config, int64_t n_tokens) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {config.width, config.qkv_width()},
      {config.n_heads * config.head_dim, config.width},
      {config.width, 2 * config.feed_forward_width},
      {config.feed_forward_width, config.width}};
  std::vector<std::function<void()>> products;
  double flops = 0;
  for (auto [in, out] : shapes) {
    at::Tensor x = at::randn({n_tokens, in}), w = at::randn({out, in}).t();
    at::Tensor y = at::empty({n_tokens, out});
    products.push_back([x, w, y]() mutable { at::mm_out(y, x, w); });
    flops += 2.0 * n_tokens * in * out * config.n_layers;
  }
  const double seconds = best_seconds([&] {
    for (int64_t l = 0; l < config.n_layers; ++l) {
      for (auto& product : products) product();
    }
  });
  return {seconds, flops};
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

  double prefill_seconds(int64_t n_tokens, int64_t prefix) {
    ForwardBatch batch;
    batch.add(std::span(tokens_).first(n_tokens), std::span(slots_).first(prefix + n_tokens), true);
    return best_seconds([&] { model_.forward(batch, kv_.data()); });
  }

  double decode_seconds(int64_t sequences, int64_t context) {
    ForwardBatch batch;
    for (int64_t s = 0; s < sequences; ++s) {
      batch.add(std::span(tokens_).subspan(s, 1), std::span(slots_).subspan(s * context, context),
                true);
    }
    return best_seconds([&] { model_.forward(batch, kv_.data()); });
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
  std::printf("%s, %d threads, best of %d\n", path, threads, kRuns);
  std::vector<std::pair<double, double>> matmul;
  for (int64_t n : {128, 512, 2048}) matmul.push_back(torch_matmul(config, n));
  Bench bench(*std::move(weights), pool);
  std::printf("%8s %14s %14s %14s %10s\n", "tokens", "torch GFLOP/s", "matmul tok/s",
              "prefill tok/s", "ratio");
  for (int i = 0; int64_t n : {128, 512, 2048}) {
    const auto [seconds, flops] = matmul[i++];
    const double prefill = bench.prefill_seconds(n, 0);
    std::printf("%8ld %14.1f %14.1f %14.1f %9.1f%%\n", n, flops / seconds * 1e-9, n / seconds,
                n / prefill, 100.0 * seconds / prefill);
  }
  for (int64_t sequences : {1, 8}) {
    const double seconds = bench.decode_seconds(sequences, 512);
    std::printf("decode, batch %ld, context 512: %.1f ms/step, %.1f tok/s\n", sequences,
                seconds * 1e3, sequences / seconds);
  }
  const double cold = bench.prefill_seconds(1540, 0), hit = bench.prefill_seconds(40, 1500),
               alone = bench.prefill_seconds(40, 0);
  std::printf("1,500 cached + 40 tokens: %.1f ms; the 40 alone: %.1f ms; all 1,540: %.1f ms\n",
              hit * 1e3, alone * 1e3, cold * 1e3);
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
