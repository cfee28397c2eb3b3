#include "services/retrieval/embed/bert_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace ragcache::retrieval {
namespace {

using ::testing::HasSubstr;

std::string model_folder() {
  return std::string(std::getenv("RAG_DEPS_DIR")) + "/models/all-minilm-l6-v2";
}

std::unique_ptr<BertEncoder> load() {
  auto encoder = BertEncoder::load(model_folder());
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  return *std::move(encoder);
}

std::vector<float> encode(BertEncoder& encoder, const std::vector<std::vector<uint32_t>>& ids) {
  const std::vector<std::span<const uint32_t>> sequences(ids.begin(), ids.end());
  std::vector<float> vectors;
  encoder.encode(sequences, vectors);
  return vectors;
}

float greatest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) greatest = std::max(greatest, std::abs(a[i] - b[i]));
  return greatest;
}

struct Golden {
  std::vector<std::vector<uint32_t>> ids;
  std::vector<float> vectors;
};

Golden read_golden() {
  const std::string folder = std::string(std::getenv("RAG_SOURCE_DIR")) + "/tests/golden/";
  std::ifstream json_file(folder + "embeddings.json");
  const nlohmann::json json = nlohmann::json::parse(json_file);
  Golden golden;
  for (const auto& sentence : json["sentences"]) {
    golden.ids.push_back(sentence["ids"].get<std::vector<uint32_t>>());
  }
  golden.vectors.resize(golden.ids.size() * json["dimension"].get<size_t>());
  std::ifstream vectors(folder + "embeddings.f32", std::ios::binary);
  vectors.read(reinterpret_cast<char*>(golden.vectors.data()),
               static_cast<std::streamsize>(golden.vectors.size() * sizeof(float)));
  EXPECT_TRUE(vectors.good());
  return golden;
}

TEST(BertEncoder, AgreesWithTheReferenceInABatchAndAlone) {
  const auto encoder = load();
  const Golden golden = read_golden();
  ASSERT_GE(golden.ids.size(), 50u);
  EXPECT_LE(greatest_difference(encode(*encoder, golden.ids), golden.vectors), 1e-4f);
  for (size_t i = 0; i < golden.ids.size(); ++i) {
    const auto expected =
        std::span(golden.vectors).subspan(i * encoder->dimension(), encoder->dimension());
    EXPECT_LE(greatest_difference(encode(*encoder, {golden.ids[i]}), expected), 1e-4f) << i;
  }
}

TEST(BertEncoder, DoesNotLetNeighboursInABatchChangeAVector) {
  const auto encoder = load();
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  std::vector<std::vector<uint32_t>> ids;
  for (const size_t length : {1, 2, 3, 17, 100, 255, 256, 256, 9, 1}) {
    std::vector<uint32_t> sequence(length);
    for (uint32_t& id : sequence) id = random() % encoder->config().vocabulary_size;
    ids.push_back(sequence);
  }
  const std::vector<float> together = encode(*encoder, ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> alone = encode(*encoder, {ids[i]});
    const auto in_batch = std::span(together).subspan(i * alone.size(), alone.size());
    EXPECT_EQ(greatest_difference(alone, in_batch), 0)
        << "length " << ids[i].size() << ", seed " << kSeed;
    double norm = 0;
    for (const float x : alone) norm += double{x} * x;
    EXPECT_NEAR(norm, 1, 1e-5);
  }
}

class BertEncoderFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "bert_" + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    std::ifstream file(model_folder() + "/config.json");
    config_ = nlohmann::json::parse(file);
    std::filesystem::create_symlink(model_folder() + "/model.safetensors",
                                    folder_ + "/model.safetensors");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string error() {
    std::ofstream(folder_ + "/config.json") << config_.dump();
    const auto encoder = BertEncoder::load(folder_);
    EXPECT_FALSE(encoder.ok());
    return std::string(encoder.status().message());
  }

  std::string folder_;
  nlohmann::json config_;
};

TEST_F(BertEncoderFolder, NamesTheTensorWhoseShapeDoesNotFit) {
  config_["intermediate_size"] = 1024;
  EXPECT_THAT(error(), HasSubstr("encoder.layer.0.intermediate.dense.weight is not float32 "
                                 "[1024, 384] but [1536, 384]"));
}

TEST_F(BertEncoderFolder, NamesTheTensorThatIsMissing) {
  config_["num_hidden_layers"] = 7;
  EXPECT_THAT(error(), HasSubstr("encoder.layer.6."));
}

TEST_F(BertEncoderFolder, NamesTheFieldThatItCannotCompute) {
  config_["hidden_act"] = "relu";
  EXPECT_THAT(error(), HasSubstr("hidden_act=relu, only gelu works"));
  config_["hidden_act"] = "gelu";
  config_["num_attention_heads"] = 7;
  EXPECT_THAT(error(), HasSubstr("num_attention_heads=7"));
  config_.erase("num_attention_heads");
  EXPECT_THAT(error(), HasSubstr("config.json has no num_attention_heads"));
}

TEST_F(BertEncoderFolder, RefusesACutWeightsFile) {
  std::filesystem::remove(folder_ + "/model.safetensors");
  std::ifstream whole(model_folder() + "/model.safetensors", std::ios::binary);
  std::string begin(1 << 20, '\0');
  whole.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << begin;
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
}

TEST_F(BertEncoderFolder, SaysWhichFolderIsMissing) {
  const auto encoder = BertEncoder::load(folder_ + "/none");
  ASSERT_EQ(encoder.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(encoder.status().message()), HasSubstr(folder_ + "/none"));
}

}  // namespace
}  // namespace ragcache::retrieval
