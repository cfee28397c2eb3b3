#include "common/model/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/strings.h"
#include "common/weights/gguf_writer.h"

namespace ragcache {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string golden(const std::string& name) {
  return str_cat(std::getenv("RAG_SOURCE_DIR"), "/tests/golden/", name);
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A copy of a golden model whose files a test changes.
class ModelFolder : public ::testing::Test {
 protected:
  ModelFolder() { fs::create_directories(folder_); }
  ~ModelFolder() override { fs::remove_all(folder_); }

  void copy(const std::string& model) {
    fs::remove_all(folder_);
    fs::copy(golden("models/" + model), folder_);
    fs::copy(golden("tokenizers/llama3/tokenizer.json"), folder_);
  }
  void change(const std::string& file, auto change) {
    Json json = Json::parse(read(folder_ + "/" + file));
    change(json);
    write(folder_ + "/" + file, json.dump());
  }
  std::string error() {
    const auto files = ModelFiles::open(folder_);
    return files.ok() ? "no error" : std::string(files.status().message());
  }
  std::string config_error(auto change_config) {
    copy("llama_grouped");
    change("config.json", change_config);
    return error();
  }

  const std::string folder_ = str_cat(::testing::TempDir(), "/model_files_", ::getpid());
};

TEST_F(ModelFolder, NamesTensorsAsGgufDoesWhicheverShardHasThem) {
  copy("llama_grouped");
  const auto files = *ModelFiles::open(folder_);
  EXPECT_EQ(files->tensors().size(), 2u * 9 + 3);
  EXPECT_EQ((*files->tensor("token_embd.weight"))->dimensions, (std::vector<uint64_t>{48, 96}));
  EXPECT_EQ((*files->tensor("blk.1.attn_k.weight"))->dimensions, (std::vector<uint64_t>{48, 16}));
  EXPECT_EQ((*files->tensor("blk.0.ffn_down.weight"))->dimensions, (std::vector<uint64_t>{64, 48}));
  EXPECT_EQ((*files->tensor("output.weight"))->type, GgmlType::kF32);
  EXPECT_EQ(files->tensor("lm_head.weight").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(files->config().name, fs::path(folder_).filename());
  EXPECT_EQ(files->config().n_kv_heads, 1);
  EXPECT_EQ(files->config().head_dim, 16);
  EXPECT_EQ(files->config().rotary_rows, RotaryRows::kHalves);
}

TEST_F(ModelFolder, ReadsTheConfigurationsOfTheFamily) {
  copy("llama_multi_head");
  EXPECT_EQ((*ModelFiles::open(folder_))->config().rope_factors, std::vector<float>(8, 2.0f));
  copy("mistral");
  const ModelConfig mistral = (*ModelFiles::open(folder_))->config();
  EXPECT_EQ(mistral.context_tokens, 96) << "the sliding window is the context";
  EXPECT_EQ(mistral.rope_base, 1e6);
  EXPECT_EQ(mistral.head_dim, 32);
  copy("qwen2");
  EXPECT_TRUE((*ModelFiles::open(folder_))->config().qkv_bias);
  copy("llama_grouped");
  const std::vector<float> factors = (*ModelFiles::open(folder_))->config().rope_factors;
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors.back(), 8.0f);
  // As files of earlier releases of transformers have it.
  change("config.json", [](Json& json) {
    json["rope_scaling"] = json["rope_parameters"];
    json["rope_scaling"].erase("rope_theta");
    json["rope_theta"] = 500000;
    json.erase("rope_parameters");
  });
  const auto earlier = ModelFiles::open(folder_);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  EXPECT_EQ((*earlier)->config().rope_factors, factors);
  EXPECT_EQ((*earlier)->config().rope_base, 5e5);
}

TEST_F(ModelFolder, NamesWhatItRefuses) {
  EXPECT_EQ(config_error([](Json&) {}), "no error");
  EXPECT_THAT(config_error([](Json& j) { j["model_type"] = "gemma2"; }), HasSubstr("\"gemma2\""));
  EXPECT_THAT(config_error([](Json& j) { j["model_type"] = "mixtral"; }), HasSubstr("mixtral"));
  EXPECT_THAT(config_error([](Json& j) { j["hidden_act"] = "gelu"; }), HasSubstr("gelu"));
  EXPECT_THAT(config_error([](Json& j) { j["attention_bias"] = true; }),
              HasSubstr("attention_bias"));
  EXPECT_THAT(config_error([](Json& j) {
                j["quantization_config"] = {{"bits", 4}};
              }),
              HasSubstr("quantization_config"));
  EXPECT_THAT(config_error([](Json& j) { j["rope_parameters"]["rope_type"] = "yarn"; }),
              HasSubstr("yarn"));
  EXPECT_THAT(config_error([](Json& j) { j["rope_parameters"].erase("factor"); }),
              HasSubstr("config.json has no rope_parameters.factor"));
  EXPECT_THAT(config_error([](Json& j) { j["num_hidden_layers"] = 0; }),
              HasSubstr("num_hidden_layers is 0, must be in 1..1024"));
  EXPECT_THAT(config_error([](Json& j) { j["num_hidden_layers"] = -3; }),
              HasSubstr("num_hidden_layers is not an unsigned integer"));
  EXPECT_THAT(config_error([](Json& j) { j.erase("hidden_size"); }),
              HasSubstr("config.json has no hidden_size"));
  EXPECT_THAT(config_error([](Json& j) { j["num_key_value_heads"] = 2; }),
              HasSubstr("must be a multiple of num_key_value_heads"));
  EXPECT_THAT(config_error([](Json& j) { j["head_dim"] = 12; }), HasSubstr("head size is 12"));
  EXPECT_THAT(config_error([](Json& j) { j["vocab_size"] = uint64_t{1} << 60; }),
              HasSubstr("vocab_size"));
  EXPECT_THAT(config_error([](Json& j) { j["rms_norm_eps"] = "small"; }),
              HasSubstr("rms_norm_eps is not a number"));
}

TEST_F(ModelFolder, RefusesShardsThatDoNotFitTheIndex) {
  const std::string index = "model.safetensors.index.json";
  copy("llama_grouped");
  fs::remove(folder_ + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(error(), HasSubstr("model-00002-of-00002.safetensors"));
  copy("llama_grouped");
  change(index, [](Json& j) { j["weight_map"]["lm_head.weight"] = "../x.safetensors"; });
  EXPECT_THAT(error(), HasSubstr("not the name of a .safetensors file"));
  copy("llama_grouped");
  change(index, [](Json& j) {
    j["weight_map"]["model.norm.weight"] = j["weight_map"]["model.embed_tokens.weight"];
  });
  EXPECT_THAT(error(), HasSubstr("has no tensor model.norm.weight"));
  copy("llama_grouped");
  change(index, [](Json& j) { j["weight_map"].erase("lm_head.weight"); });
  EXPECT_THAT(error(), HasSubstr("tensor lm_head.weight is missing"));
  copy("llama_grouped");
  write(folder_ + "/" + index, "[]");
  EXPECT_THAT(error(), HasSubstr("no JSON object"));
  copy("qwen2");
  std::string weights = read(folder_ + "/model.safetensors");
  weights.replace(weights.find("\"F16\""), 5, "\"I16\"");
  write(folder_ + "/model.safetensors", weights);
  EXPECT_THAT(error(), HasSubstr("dtype I16"));
}

TEST_F(ModelFolder, IsOpenedAndHashedOnceWhileItIsInUse) {
  copy("qwen2");
  const auto first = *ModelFiles::open(folder_);
  EXPECT_EQ(*ModelFiles::open(folder_), first);
  EXPECT_EQ(*ModelFiles::open(folder_ + "/."), first);
  EXPECT_EQ(*first->tokenizer(), *(*ModelFiles::open(folder_))->tokenizer());
  const Digest fingerprint = first->fingerprint();

  copy("qwen2");  // another folder of the same content
  const auto second = *ModelFiles::open(folder_);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->fingerprint(), fingerprint);
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
    copy("qwen2");
    std::string bytes = read(folder_ + "/" + file);
    if (std::string(file).ends_with("json")) {
      bytes += "\n";
    } else {
      bytes.back() ^= 1;
    }
    write(folder_ + "/" + file, bytes);
    EXPECT_NE((*ModelFiles::open(folder_))->fingerprint(), fingerprint) << file;
  }
}

TEST_F(ModelFolder, HasThePromptFormatOfItsOwnTemplateUnlessTold) {
  copy("qwen2");
  const auto root = [&](const std::string& choice) {
    const auto files = *ModelFiles::open(folder_);
    const auto format = files->prompt_format(choice);
    return format.ok() ? (*files->tokenizer())->decode((*format)->root("S"))
                       : std::string(format.status().message());
  };
  EXPECT_EQ(root("llama3"), "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS");
  EXPECT_EQ(root("auto"), "<|im_start|>system\nS");
  write(
      folder_ + "/tokenizer_config.json",
      R"({"chat_template": "{{ '<|start_header_id|>' }}", "eos_token": {"content": "<|eot_id|>"}})");
  EXPECT_THAT(root("auto"), HasSubstr("<|start_header_id|>system"));
  write(folder_ + "/tokenizer_config.json",
        R"({"chat_template": [{"name": "tool", "template": ""},
                              {"name": "default", "template": "{{ '<|im_start|>' }}"}],
            "bos_token": "<|begin_of_text|>", "add_bos_token": true})");
  EXPECT_EQ(root("auto"), "<|begin_of_text|><|im_start|>system\nS");
  write(folder_ + "/chat_template.jinja", "{{ m }} unknown");
  EXPECT_THAT(root("auto"), HasSubstr(folder_));
  EXPECT_THAT(root("auto"), HasSubstr("chatml, llama2, mistral, llama3"));
}

TEST_F(ModelFolder, ReadsGgufFilesByTheSameNames) {
  const auto files = ModelFiles::open(golden("models/quantized/model.gguf"));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)->config().name, "model");
  EXPECT_EQ((*files)->config().rotary_rows, RotaryRows::kNeighbours);
  EXPECT_EQ((*(*files)->tensor("blk.0.attn_q.weight"))->type, GgmlType::kQ4K);
  EXPECT_EQ((*files)->fingerprint(), sha256(read(golden("models/quantized/model.gguf"))));
  EXPECT_EQ((*files)->tokenizer().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ModelFiles::open(folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
}

class GgufConfig : public ModelFolder {
 protected:
  absl::StatusOr<std::shared_ptr<const ModelFiles>> open(auto change, std::string arch = "llama") {
    GgufWriter writer;
    writer.add_string("general.architecture", arch);
    writer.add_uint32(arch + ".block_count", 1);
    writer.add_uint32(arch + ".context_length", 64);
    writer.add_uint32(arch + ".embedding_length", 32);
    writer.add_uint32(arch + ".feed_forward_length", 64);
    writer.add_uint32(arch + ".attention.head_count", 2);
    writer.add_float(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    writer.add_tensor("token_embd.weight", std::vector<uint64_t>{32, 4}, 0, std::string(512, 0));
    change(writer);
    write(folder_ + "/model.gguf", writer.bytes());
    return ModelFiles::open(folder_ + "/model.gguf");
  }
  std::string gguf_error(auto change, const std::string& architecture = "llama") {
    const auto files = open(change, architecture);
    return files.ok() ? "no error" : std::string(files.status().message());
  }
};

TEST_F(GgufConfig, TakesRopeFactorsFromTheirTensor) {
  std::string factors;
  for (int i = 0; i < 8; ++i) GgufWriter::put(factors, 1.0f + i);
  const auto files = open([&](GgufWriter& writer) {
    writer.add_tensor("rope_freqs.weight", std::vector<uint64_t>{8}, 0, factors);
  });
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)->config().rope_factors, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ((*files)->tensors().size(), 1u) << "they are no weight";
  EXPECT_THAT(gguf_error([&](GgufWriter& writer) {
                writer.add_tensor("rope_freqs.weight", std::vector<uint64_t>{4}, 0,
                                  factors.substr(16));
              }),
              HasSubstr("rope_freqs.weight is not 8 numbers"));
  GgufWriter::put(factors, 0.0f);
  EXPECT_THAT(gguf_error([&](GgufWriter& writer) {
                writer.add_tensor("rope_freqs.weight", std::vector<uint64_t>{8}, 0,
                                  factors.substr(4));
              }),
              HasSubstr("has the element 0"));
}

TEST_F(GgufConfig, NamesWhatItRefuses) {
  const auto nothing = [](GgufWriter&) {};
  EXPECT_EQ(gguf_error(nothing), "no error");
  EXPECT_EQ(gguf_error(nothing, "qwen2"), "no error");
  EXPECT_THAT(gguf_error(nothing, "gemma2"), HasSubstr("general.architecture is \"gemma2\""));
  EXPECT_THAT(gguf_error([](GgufWriter& w) { w.add_uint32("llama.expert_count", 8); }),
              HasSubstr("mixtures of experts"));
  EXPECT_THAT(gguf_error([](GgufWriter& w) { w.add_uint32("split.count", 3); }),
              HasSubstr("split.count is 3"));
  EXPECT_THAT(gguf_error([](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "yarn"); }),
              HasSubstr("llama.rope.scaling.type is \"yarn\""));
  EXPECT_THAT(gguf_error([](GgufWriter& w) { w.add_uint32("llama.rope.dimension_count", 8); }),
              HasSubstr("llama.rope.dimension_count is 8, must be the head size 16"));
  EXPECT_THAT(gguf_error([](GgufWriter& w) { w.add_float("llama.rope.freq_base", NAN); }),
              HasSubstr("llama.rope.freq_base"));
}

}  // namespace
}  // namespace ragcache
