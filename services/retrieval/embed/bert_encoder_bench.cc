// Tokens per second of the encoder, and which share that is of what its matrix products alone
// would allow on this machine: Torch's products of its linear layers, same shapes and nothing
// else, and those of attention at the same rate. The same for the products that the encoder itself
// uses. The rows are batches as the service makes them: documents in slices of 512 tokens, whole
// and cut at 256; questions of about twelve tokens alone and together.
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
#include "kernels/linear/linear.h"
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

// The products of all layers, each with weights of its own.
struct Products {
  Products(const BertConfig& config, int64_t n_tokens) : n_tokens(n_tokens) {
    const int64_t width = config.hidden_size;
    const int64_t wide = config.feed_forward_size;
    for (uint32_t i = 0; i < config.n_layers; ++i) {
      for (const auto& [in, out] :
           {std::pair{width, 3 * width}, {width, width}, {width, wide}, {wide, width}}) {
        weights.push_back(at::randn({in, out}));
        packed.emplace_back(out, in);
        const at::Tensor rows = weights.back().t().contiguous();
        for (int64_t row = 0; row < out; ++row) {
          packed.back().set_row(
              row, std::span(rows.const_data_ptr<float>() + row * in, static_cast<size_t>(in)));
        }
        inputs.push_back(at::randn({n_tokens, in}));
        outputs.push_back(at::empty({n_tokens, out}));
        flops += 2.0 * static_cast<double>(n_tokens * in * out);
      }
    }
  }
  void run_torch() {
    for (size_t i = 0; i < weights.size(); ++i) at::mm_out(outputs[i], inputs[i], weights[i]);
  }
  void run_own(kernels::ThreadPool& pool) {
    for (size_t i = 0; i < weights.size(); ++i) {
      kernels::linear(inputs[i].const_data_ptr<float>(), n_tokens, packed[i],
                      outputs[i].mutable_data_ptr<float>(), pool);
    }
  }

  const int64_t n_tokens;
  std::vector<at::Tensor> weights, inputs, outputs;
  std::vector<kernels::PackedWeights> packed;
  double flops = 0;
};

int run(const std::string& folder, double budget_s) {
  auto encoder = BertEncoder::load(folder);
  if (!encoder.ok()) {
    std::fprintf(stderr, "%s\n", std::string(encoder.status().message()).c_str());
    return 2;
  }
  const BertConfig& config = (*encoder)->config();
  const c10::InferenceMode inference;
  kernels::ThreadPool pool(kernels::ThreadPool::default_threads());
  at::set_num_threads(pool.threads());
  std::printf("threads %d\n%-28s %6s | %9s | %9s %8s %6s | %9s %8s %6s\n", pool.threads(), "batch",
              "tokens", "tokens/s", "torch", "GFLOP/s", "share", "own", "GFLOP/s", "share");
  const std::vector<std::pair<const char*, std::vector<int>>> rows = {
      {"question", {12}},
      {"8 questions", {9, 12, 15, 8, 12, 14, 10, 16}},
      {"2 documents cut at 256", {256, 256}},
      {"5 documents, mixed", {41, 180, 97, 66, 128}},
      {"4 documents of 128", {128, 128, 128, 128}},
      {"16 passages of 32", std::vector<int>(16, 32)},
  };
  std::mt19937 random(1);
  for (const auto& [name, lengths] : rows) {
    std::vector<std::vector<uint32_t>> ids;
    int64_t tokens = 0;
    double attention_flops = 0;
    for (const int length : lengths) {
      std::vector<uint32_t>& sequence = ids.emplace_back();
      for (int i = 0; i < length; ++i) sequence.push_back(1000 + random() % 20000);
      tokens += length;
      attention_flops += 4.0 * length * length * config.hidden_size * config.n_layers;
    }
    const std::vector<std::span<const uint32_t>> sequences(ids.begin(), ids.end());
    std::vector<float> vectors;
    Products products(config, tokens);
    // In turns, so that a busy machine slows all.
    double encode_s = 1e9, torch_s = 1e9, own_s = 1e9;
    for (int i = 0; i < 4; ++i) {
      encode_s = std::min(encode_s, best_seconds(budget_s / 12, [&] {
                            vectors.clear();
                            (*encoder)->encode(sequences, vectors);
                          }));
      torch_s = std::min(torch_s, best_seconds(budget_s / 12, [&] { products.run_torch(); }));
      own_s = std::min(own_s, best_seconds(budget_s / 12, [&] { products.run_own(pool); }));
    }
    const double attention = 1 + attention_flops / products.flops;
    const auto n = static_cast<double>(tokens);
    std::printf("%-28s %6ld | %9.0f | %9.0f %8.1f %5.1f%% | %9.0f %8.1f %5.1f%%\n", name,
                static_cast<long>(tokens), n / encode_s, n / (torch_s * attention),
                products.flops / torch_s / 1e9, 100 * torch_s * attention / encode_s,
                n / (own_s * attention), products.flops / own_s / 1e9,
                100 * own_s * attention / encode_s);
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
