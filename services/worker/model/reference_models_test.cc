// Tiny models of every form that is read, against PyPI transformers (tests/golden/README.md).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gtest/gtest.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr float kTolerance = 1e-3f;

class ReferenceModel : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceModel, GivesTheReferencesLogitsAndContinuations) {
  const std::string folder =
      std::string(std::getenv("RAG_SOURCE_DIR")) + "/tests/golden/models/" + GetParam();
  std::ifstream stream(folder + "/logits.json");
  ASSERT_TRUE(stream.is_open());
  const nlohmann::json prompts = nlohmann::json::parse(stream);
  const bool quantised = std::ifstream(folder + "/model.gguf").is_open();
  const auto files = ModelFiles::open(quantised ? folder + "/model.gguf" : folder);
  ASSERT_TRUE(files.ok()) << files.status();
  kernels::ThreadPool pool(2);
  auto weights = load_llama_weights(**files, pool);
  ASSERT_TRUE(weights.ok()) << weights.status();
  LlamaModel model(*std::move(weights), /*max_tokens=*/128, pool);
  std::vector<uint8_t> kv(8 * model.kv_layout().block_bytes());

  float worst = 0;
  for (const nlohmann::json& prompt : prompts) {
    std::vector<uint32_t> ids = prompt.at("ids");
    const std::vector<uint32_t> continuation = prompt.at("continuation");
    const std::vector<float> margins = prompt.at("margins");
    std::vector<int32_t> slots(ids.size() + continuation.size());
    std::iota(slots.begin(), slots.end(), 0);
    size_t n_new = ids.size();
    for (size_t step = 0; step < continuation.size(); ++step) {
      ForwardBatch batch;
      batch.add(std::span(ids).last(n_new), std::span(slots).first(ids.size()), true);
      const std::span<const float> logits = model.forward(batch, kv.data());
      if (step == 0) {
        const std::vector<float> expected = prompt.at("logits");
        ASSERT_EQ(logits.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          worst = std::max(worst, std::abs(logits[i] - expected[i]));
        }
      }
      const auto token =
          static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (token != continuation[step]) {
        EXPECT_LT(margins[step], kTolerance) << "parts at step " << step;
        break;
      }
      ids.push_back(token);
      n_new = 1;
    }
  }
  std::printf("largest difference of a logit: %.2e\n", worst);
  EXPECT_LE(worst, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Forms, ReferenceModel,
                         testing::Values("llama_grouped", "llama_multi_head", "mistral", "qwen2",
                                         "quantized"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace ragcache::worker
