// The real model against PyPI transformers reading the same file (tests/golden/README.md).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gtest/gtest.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr float kTolerance = 1e-3f;
constexpr float kHalfTolerance = 0.1f;
constexpr float kInt8Tolerance = 1.0f;
constexpr int32_t kBlockTokens = kernels::KvLayout::kBlockTokens;

struct Prompt {
  std::vector<uint32_t> ids;
  std::vector<float> logits;  // at the file's "positions"
  std::vector<std::pair<uint32_t, float>> top;
  std::vector<uint32_t> continuation;
  std::vector<float> margins;
};

class LlamaGolden : public testing::Test {
 protected:
  void SetUp() override {
    // RAG_LOGITS_GOLDEN names another file of the same form, made from real prompts.
    const char* other = std::getenv("RAG_LOGITS_GOLDEN");
    const std::string path =
        other != nullptr ? other
                         : std::string(std::getenv("RAG_SOURCE_DIR")) + "/tests/golden/logits.json";
    std::ifstream stream(path);
    ASSERT_TRUE(stream) << path << " is missing";
    const nlohmann::json golden = nlohmann::json::parse(stream);
    positions_ = golden.at("positions").get<std::vector<uint32_t>>();
    for (const nlohmann::json& prompt : golden.at("prompts")) {
      prompts_.push_back({prompt.at("ids").get<std::vector<uint32_t>>(),
                          prompt.at("logits").get<std::vector<float>>(),
                          prompt.at("top").get<std::vector<std::pair<uint32_t, float>>>(),
                          prompt.at("continuation").get<std::vector<uint32_t>>(),
                          prompt.at("margins").get<std::vector<float>>()});
    }
  }

  void load_model(kernels::KvType kv_type, Activations activations = Activations::kF32) {
    auto file = ModelFiles::open(std::string(std::getenv("RAG_DEPS_DIR")) +
                                 "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    auto weights = load_llama_weights(**file, pool_);
    ASSERT_TRUE(weights.ok()) << weights.status();
    int64_t tokens = 0;
    int32_t next_block = 0;
    slots_.clear();
    for (const Prompt& prompt : prompts_) {
      tokens += prompt.ids.size();
      // Every prompt has its own run of blocks.
      const size_t length = prompt.ids.size() + prompt.continuation.size();
      std::vector<int32_t>& slots = slots_.emplace_back();
      for (size_t i = 0; i < length; ++i) slots.push_back(next_block * kBlockTokens + i);
      next_block += static_cast<int32_t>((length + kBlockTokens - 1) / kBlockTokens);
    }
    model_ = std::make_unique<LlamaModel>(*std::move(weights), tokens, pool_, kv_type, activations);
    kv_.resize(next_block * model_->kv_layout().block_bytes());
  }

  // Greedy tokens of prompt `p`, its first `prefix` tokens in a pass of their own.
  std::vector<uint32_t> answer(size_t p, size_t prefix, size_t count) {
    std::vector<uint32_t> tokens = prompts_[p].ids;
    size_t computed = 0;
    for (size_t end = prefix > 0 ? prefix : tokens.size();
         tokens.size() < prompts_[p].ids.size() + count; end = tokens.size()) {
      ForwardBatch batch;
      batch.add(std::span(tokens).subspan(computed, end - computed),
                std::span(slots_[p]).first(end), end == tokens.size());
      const auto logits = model_->forward(batch, kv_.data());
      computed = end;
      if (!logits.empty()) {
        tokens.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
      }
    }
    tokens.erase(tokens.begin(), tokens.end() - count);
    return tokens;
  }

  void expect_logits(const Prompt& prompt, std::span<const float> logits) {
    for (size_t i = 0; i < positions_.size(); ++i) {
      worst_ = std::max(worst_, std::abs(logits[positions_[i]] - prompt.logits[i]));
    }
    for (auto [id, value] : prompt.top) worst_ = std::max(worst_, std::abs(logits[id] - value));
  }

  // All prompts in one batch, then their continuations. A token may be another where the reference
  // decides by less than `tolerance`.
  void expect_reference(float tolerance) {
    ForwardBatch batch;
    for (size_t p = 0; p < prompts_.size(); ++p) {
      batch.add(prompts_[p].ids, std::span(slots_[p]).first(prompts_[p].ids.size()), true);
    }
    const int64_t vocabulary = model_->config().vocabulary;
    std::span<const float> logits = model_->forward(batch, kv_.data());
    for (size_t p = 0; p < prompts_.size(); ++p) {
      expect_logits(prompts_[p], logits.subspan(p * vocabulary, vocabulary));
    }
    EXPECT_LE(worst_, tolerance);
    RecordProperty("max_abs_logit_difference", std::to_string(worst_));
    std::printf("largest difference of a logit: %.2e\n", worst_);

    std::vector<size_t> running(prompts_.size());
    for (size_t p = 0; p < prompts_.size(); ++p) running[p] = p;
    size_t compared = 0;
    for (size_t step = 0; !running.empty(); ++step) {
      std::vector<size_t> next;
      batch.clear();
      for (size_t row = 0; row < running.size(); ++row) {
        const Prompt& prompt = prompts_[running[row]];
        const auto row_logits = logits.subspan(row * vocabulary, vocabulary);
        const uint32_t token = static_cast<uint32_t>(
            std::max_element(row_logits.begin(), row_logits.end()) - row_logits.begin());
        if (token != prompt.continuation[step]) {
          EXPECT_LT(prompt.margins[step], tolerance)
              << "prompt " << running[row] << " parts at step " << step;
          continue;
        }
        ++compared;
        if (step + 1 == prompt.continuation.size()) continue;
        const size_t length = prompt.ids.size() + step + 1;
        batch.add(std::span(prompt.continuation).subspan(step, 1),
                  std::span(slots_[running[row]]).first(length), true);
        next.push_back(running[row]);
      }
      running = std::move(next);
      if (!running.empty()) logits = model_->forward(batch, kv_.data());
    }
    std::printf("equal continuation tokens: %zu of %zu\n", compared,
                prompts_.size() * prompts_[0].continuation.size());
  }

  kernels::ThreadPool pool_{static_cast<int>(std::thread::hardware_concurrency())};
  std::vector<uint32_t> positions_;
  std::vector<Prompt> prompts_;
  std::vector<std::vector<int32_t>> slots_;
  std::unique_ptr<LlamaModel> model_;
  std::vector<uint8_t> kv_;
  float worst_ = 0;
};

TEST_F(LlamaGolden, GivesTheReferencesLogitsAndContinuationsInOneBatch) {
  load_model(kernels::KvType::kF32);
  expect_reference(kTolerance);
}

// Bytes for activations move logits by some tenths.
TEST_F(LlamaGolden, GivesNearlyTheReferencesLogitsAndContinuationsWithInt8Activations) {
  load_model(kernels::KvType::kF32, Activations::kInt8);
  expect_reference(kInt8Tolerance);
  EXPECT_GT(worst_, kTolerance) << "these are fp32 activations";
  EXPECT_NE(model_->kv_fingerprint(), model_->fingerprint());
}

// So do bytes for keys and values.
TEST_F(LlamaGolden, GivesNearlyTheReferencesLogitsAndContinuationsWithInt8KeysAndValues) {
  load_model(kernels::KvType::kI8);
  expect_reference(kInt8Tolerance);
  EXPECT_GT(worst_, kTolerance) << "these are not bytes";
}

TEST_F(LlamaGolden, GivesNearlyTheReferencesLogitsAndContinuationsWithInt8Everywhere) {
  load_model(kernels::KvType::kI8, Activations::kInt8);
  expect_reference(2 * kInt8Tolerance);
}

TEST_F(LlamaGolden, GivesTheSameTokensWithAndWithoutACachedPrefixInHalves) {
  load_model(kernels::KvType::kF16);
  constexpr size_t kTokens = 16;
  for (size_t p = 0; p < prompts_.size(); p += 10) {
    SCOPED_TRACE(testing::Message() << "prompt " << p);
    const size_t length = prompts_[p].ids.size();
    const std::vector<uint32_t> whole = answer(p, 0, kTokens);
    EXPECT_EQ(answer(p, length / 2, kTokens), whole);
    EXPECT_EQ(answer(p, length - 1, kTokens), whole);
    // Halves move logits by some hundredths: where the reference decides by more, it agrees.
    for (size_t i = 0; i < kTokens && prompts_[p].margins[i] > kHalfTolerance; ++i) {
      ASSERT_EQ(whole[i], prompts_[p].continuation[i]) << "at step " << i;
    }
  }
}

// The promise that a cached prefix changes nothing holds to the last bit: with int8 activations a
// difference in the last bits would soon be one of whole steps.
TEST_F(LlamaGolden, GivesTheSameBitsAfterACachedPrefixWhateverTheTypes) {
  for (const auto& [kv_type, activations] : {std::pair{kernels::KvType::kF16, Activations::kF32},
                                             {kernels::KvType::kF16, Activations::kInt8},
                                             {kernels::KvType::kI8, Activations::kF32}}) {
    SCOPED_TRACE(testing::Message() << "KV in " << kernels::name_of(kv_type) << ", activations "
                                    << static_cast<int>(activations));
    load_model(kv_type, activations);
    for (size_t p = 0; p < prompts_.size(); p += 10) {
      const std::vector<uint32_t>& ids = prompts_[p].ids;
      const auto slots = std::span(slots_[p]).first(ids.size());
      const auto logits = [&](size_t begin, size_t end) {
        ForwardBatch batch;
        batch.add(std::span(ids).subspan(begin, end - begin), slots.first(end), true);
        const auto values = model_->forward(batch, kv_.data());
        return std::vector<float>(values.begin(), values.end());
      };
      const std::vector<float> whole = logits(0, ids.size());
      for (const size_t prefix : {ids.size() / 3, ids.size() / 2, ids.size() - 1}) {
        logits(0, prefix);
        EXPECT_EQ(logits(prefix, ids.size()), whole) << "prompt " << p << ", prefix " << prefix;
      }
    }
  }
}

TEST_F(LlamaGolden, GivesTheSameLogitsForAPromptInChunks) {
  load_model(kernels::KvType::kF32);
  const Prompt* longest = &prompts_[0];
  for (const Prompt& prompt : prompts_) {
    if (prompt.ids.size() > longest->ids.size()) longest = &prompt;
  }
  const size_t p = longest - prompts_.data();
  for (size_t chunk : {7, 16, 33}) {
    std::span<const float> logits;
    for (size_t begin = 0; begin < longest->ids.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, longest->ids.size());
      ForwardBatch batch;
      batch.add(std::span(longest->ids).subspan(begin, end - begin),
                std::span(slots_[p]).first(end), end == longest->ids.size());
      logits = model_->forward(batch, kv_.data());
    }
    worst_ = 0;
    expect_logits(*longest, logits);
    EXPECT_LE(worst_, kTolerance) << "chunks of " << chunk;
  }
}

}  // namespace
}  // namespace ragcache::worker
