#include "services/worker/model/llama_weights.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/weights/gguf_writer.h"
#include "gtest/gtest.h"

namespace ragcache::worker {
namespace {

constexpr uint64_t kWidth = 32, kHeadDim = 16, kFeedForward = 64, kVocabulary = 20;

// The tensors of a one-layer model: name, dimensions as the file has them.
struct TensorSpec {
  std::string name;
  std::vector<uint64_t> dimensions;
};

std::vector<TensorSpec> tensors() {
  return {{"token_embd.weight", {kWidth, kVocabulary}},
          {"blk.0.attn_norm.weight", {kWidth}},
          {"blk.0.attn_q.weight", {kWidth, 2 * kHeadDim}},
          {"blk.0.attn_k.weight", {kWidth, kHeadDim}},
          {"blk.0.attn_v.weight", {kWidth, kHeadDim}},
          {"blk.0.attn_output.weight", {2 * kHeadDim, kWidth}},
          {"blk.0.ffn_norm.weight", {kWidth}},
          {"blk.0.ffn_gate.weight", {kWidth, kFeedForward}},
          {"blk.0.ffn_up.weight", {kWidth, kFeedForward}},
          {"blk.0.ffn_down.weight", {kFeedForward, kWidth}},
          {"output_norm.weight", {kWidth}}};
}

// Element i of a tensor is 1000 · (its index) + i: where a value came from can be read off it.
float element(size_t tensor, uint64_t i) { return 1000.0f * tensor + i; }

class LlamaWeightsFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  absl::StatusOr<LlamaWeights> load(const std::vector<TensorSpec>& specs, uint32_t heads = 2,
                                    uint32_t kv_heads = 1,
                                    const std::string& architecture = "llama") {
    GgufWriter writer;
    writer.add_string("general.architecture", architecture);
    writer.add_uint32("llama.block_count", 1);
    writer.add_uint32("llama.context_length", 64);
    writer.add_uint32("llama.embedding_length", kWidth);
    writer.add_uint32("llama.feed_forward_length", kFeedForward);
    writer.add_uint32("llama.attention.head_count", heads);
    writer.add_uint32("llama.attention.head_count_kv", kv_heads);
    writer.add_float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t t = 0; t < specs.size(); ++t) {
      uint64_t count = 1;
      for (uint64_t dimension : specs[t].dimensions) count *= dimension;
      std::string data;
      for (uint64_t i = 0; i < count; ++i) GgufWriter::put(data, element(t, i));
      writer.add_tensor(specs[t].name, specs[t].dimensions, 0, data);
    }
    path_ = std::filesystem::path(testing::TempDir()) / absl::StrCat("llama_", getpid(), ".gguf");
    std::ofstream(path_, std::ios::binary) << writer.bytes();
    auto file = ModelFiles::open(path_.string());
    if (!file.ok()) return file.status();
    kernels::ThreadPool pool(2);
    return load_llama_weights(**file, pool);
  }

  void expect_refused(const std::vector<TensorSpec>& specs, const std::string& words) {
    const auto weights = load(specs);
    ASSERT_FALSE(weights.ok());
    EXPECT_NE(weights.status().message().find(words), std::string::npos) << weights.status();
  }

  std::filesystem::path path_;
};

TEST_F(LlamaWeightsFile, FusesMatricesAndPutsRotaryRowsInHalfSplitOrder) {
  const auto weights = load(tensors());
  ASSERT_TRUE(weights.ok()) << weights.status();
  const LlamaWeights::Layer& layer = weights->layers[0];
  EXPECT_EQ(layer.qkv.out(), 4 * static_cast<int64_t>(kHeadDim));
  const auto first_of_row = [](const kernels::PackedWeights& matrix, int64_t row) {
    std::vector<float> values(matrix.in());
    matrix.get_row(row, values);
    return values[0];
  };
  for (uint64_t i = 0; i < kHeadDim; ++i) {
    const uint64_t rotary = 2 * (i % 8) + i / 8;  // row i of ours is row 2i or 2(i-8)+1 of theirs
    EXPECT_EQ(first_of_row(layer.qkv, kHeadDim + i), element(2, (kHeadDim + rotary) * kWidth));
    EXPECT_EQ(first_of_row(layer.qkv, 2 * kHeadDim + i), element(3, rotary * kWidth));
    EXPECT_EQ(first_of_row(layer.qkv, 3 * kHeadDim + i), element(4, i * kWidth));
  }
  for (uint64_t i : {uint64_t{0}, kFeedForward - 1}) {
    EXPECT_EQ(first_of_row(layer.gate_up, i), element(7, i * kWidth));
    EXPECT_EQ(first_of_row(layer.gate_up, kFeedForward + i), element(8, i * kWidth));
  }
  EXPECT_EQ(first_of_row(weights->embedding, 19), element(0, 19 * kWidth));
  EXPECT_EQ(weights->head.out(), 0) << "without output.weight the embedding is the head";
  EXPECT_EQ(weights->config.head_dim, 16);
}

TEST_F(LlamaWeightsFile, NamesTheTensorThatIsMissingMisshapenOrUnknown) {
  for (size_t t = 0; t < tensors().size(); ++t) {
    auto specs = tensors();
    specs.erase(specs.begin() + t);
    const auto weights = load(specs);
    ASSERT_FALSE(weights.ok());
    EXPECT_NE(weights.status().message().find(tensors()[t].name), std::string::npos)
        << weights.status();
  }
  auto specs = tensors();
  specs[9].dimensions = {kWidth, kFeedForward};
  expect_refused(specs, "blk.0.ffn_down.weight has the shape {32, 64}, must have {64, 32}");
  specs = tensors();
  specs[1].dimensions = {kWidth + 32};
  expect_refused(specs, "blk.0.attn_norm.weight");
  specs = tensors();
  specs.push_back({"blk.0.attn_q.bias", {32}});
  expect_refused(specs, "blk.0.attn_q.bias is not known");
}

TEST_F(LlamaWeightsFile, NamesTheHyperparameterThatIsOutOfBounds) {
  EXPECT_NE(load(tensors(), 0).status().message().find("head_count is 0"), std::string::npos);
  EXPECT_NE(load(tensors(), 4, 3).status().message().find("multiple"), std::string::npos);
  EXPECT_NE(load(tensors(), 3, 3).status().message().find("multiple"), std::string::npos);
  EXPECT_NE(load(tensors(), 2, 1, "gpt2").status().message().find("gpt2"), std::string::npos);
}

}  // namespace
}  // namespace ragcache::worker
