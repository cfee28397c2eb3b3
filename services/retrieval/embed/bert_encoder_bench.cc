// Tokens per second of the encoder, and which share that is of what its matrix products alone
// would allow on this machine: those of its linear layers, same shapes, nothing else; and those of
// attention at the same rate.
//
//   services_retrieval_embed_bench [MODEL_FOLDER] [SECONDS_PER_ROW]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "common/clock.h"
#include "services/retrieval/embed/bert_encoder.h"

namespace ragcache::retrieval {
namespace {

// The best of repeated runs: what else the machine does only ever adds time.
template <typename Function>
double best_seconds(double budget_s, Function&& function) {
  function();
  double best = 1e9;
  const TimePoint begin = steady_now();
  do {
    const TimePoint started = steady_now();
    function();
    best = std::min(best, to_seconds(steady_now() - started));
  } while (to_seconds(steady_now() - begin) < budget_s);
  return best;
}

struct Products {
  explicit Products(const BertConfig& config, int64_t n_tokens) {
    const int64_t width = config.hidden_size;
    const int64_t wide = config.feed_forward_size;
    for (uint32_t i = 0; i < config.n_layers; ++i) {
      for (const auto& [in, out] :
           {std::pair{width, 3 * width}, {width, width}, {width, wide}, {wide, width}}) {
        weights.push_back(at::randn({in, out}));
        inputs.push_back(at::randn({n_tokens, in}));
        outputs.push_back(at::empty({n_tokens, out}));
        flops += 2.0 * static_cast<double>(n_tokens * in * out);
      }
    }
  }
  void run() {
    for (size_t i = 0; i < weights.size(); ++i) at::mm_out(outputs[i], inputs[i], weights[i]);
  }

  std::vector<at::Tensor> weights, inputs, outputs;
  double flops = 0;
};

int run(const std::string& folder, double budget_s) {
  auto encoder = BertEncoder::load(folder);
  if (!encoder.ok()) {
    std::fprintf(stderr, "%s\n", std::string(encoder.status().message()).c_str());
    return 2;
  }
  const c10::InferenceMode inference;
  std::printf("threads %d\n%8s %10s %12s %14s %10s %8s\n", at::get_num_threads(), "tokens",
              "sequences", "tokens/s", "products/s", "GFLOP/s", "share");
  std::mt19937 random(1);
  const struct {
    int sequences, length;
  } rows[] = {{1, 12}, {8, 12}, {2, 256}, {4, 128}, {4, 256}, {8, 128}, {32, 32}, {8, 256}};
  for (const auto& row : rows) {
    std::vector<std::vector<uint32_t>> ids(static_cast<size_t>(row.sequences));
    for (auto& sequence : ids) {
      for (int i = 0; i < row.length; ++i) sequence.push_back(1000 + random() % 20000);
    }
    const std::vector<std::span<const uint32_t>> sequences(ids.begin(), ids.end());
    const int tokens = row.sequences * row.length;
    std::vector<float> vectors;
    Products products((*encoder)->config(), tokens);
    // Alternately, so that a busy machine slows both.
    double encode_s = 1e9, product_s = 1e9;
    for (int i = 0; i < 4; ++i) {
      encode_s = std::min(encode_s, best_seconds(budget_s / 8, [&] {
                            vectors.clear();
                            (*encoder)->encode(sequences, vectors);
                          }));
      product_s = std::min(product_s, best_seconds(budget_s / 8, [&] { products.run(); }));
    }
    const BertConfig& config = (*encoder)->config();
    const double attention_flops = 4.0 * tokens * row.length * config.hidden_size * config.n_layers;
    const double allowed_s = product_s * (1 + attention_flops / products.flops);
    std::printf("%8d %4dx%-5d %12.0f %14.0f %10.1f %7.1f%%\n", tokens, row.sequences, row.length,
                tokens / encode_s, tokens / allowed_s, products.flops / product_s / 1e9,
                100 * allowed_s / encode_s);
  }
  return 0;
}

}  // namespace
}  // namespace ragcache::retrieval

int main(int argc, char** argv) {
  const char* deps = std::getenv("RAG_DEPS_DIR");
  const std::string folder =
      argc > 1 ? argv[1] : std::string(deps ? deps : ".deps") + "/models/all-minilm-l6-v2";
  return ragcache::retrieval::run(folder, argc > 2 ? std::atof(argv[2]) : 4);
}
