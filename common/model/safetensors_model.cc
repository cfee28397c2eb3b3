#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json/json_object.h"
#include "common/model/formats.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/model_folder.h"
#include "common/weights/safetensors.h"

namespace ragcache {
namespace {

constexpr size_t kShardsMax = 1024;

using Shards = std::map<std::string, std::shared_ptr<const SafetensorsFile>>;  // by file name

class SafetensorsModel final : public ModelFiles {
 public:
  SafetensorsModel(const std::string& folder, ModelConfig config, std::vector<Tensor> tensors,
                   Shards shards)
      : ModelFiles(folder, std::move(config), std::move(tensors)), shards_(std::move(shards)) {}

 private:
  void hash(Sha256& digest) const override;

  absl::StatusOr<std::shared_ptr<const Tokenizer>> load_tokenizer() const override {
    return load_folder_tokenizer(path());
  }

  absl::StatusOr<std::string> load_chat_template() const override {
    return read_folder_chat_template(path());
  }

  const Shards shards_;
};

// A file counts by its name, its length and its content.
void SafetensorsModel::hash(Sha256& digest) const {
  const auto add = [&](const std::string& name, std::span<const uint8_t> bytes) {
    digest.update(str_cat(name, ":", bytes.size(), ":")).update(bytes);
  };
  for (const char* name :
       {"config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    const auto file = MappedFile::open(str_cat(path(), "/", name));
    if (file.ok()) add(name, file->bytes());
  }
  for (const auto& [name, shard] : shards_) add(name, shard->bytes());
}

// Tensors by PyTorch's names and the names that GGUF has for them.
struct NamePair {
  std::string_view theirs;
  std::string_view ours;
};

constexpr NamePair kModelNames[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                    {"model.norm.weight", "output_norm.weight"},
                                    {"lm_head.weight", "output.weight"}};
constexpr NamePair kLayerNames[] = {{"input_layernorm.weight", "attn_norm.weight"},
                                    {"self_attn.q_proj.weight", "attn_q.weight"},
                                    {"self_attn.q_proj.bias", "attn_q.bias"},
                                    {"self_attn.k_proj.weight", "attn_k.weight"},
                                    {"self_attn.k_proj.bias", "attn_k.bias"},
                                    {"self_attn.v_proj.weight", "attn_v.weight"},
                                    {"self_attn.v_proj.bias", "attn_v.bias"},
                                    {"self_attn.o_proj.weight", "attn_output.weight"},
                                    {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                    {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                    {"mlp.up_proj.weight", "ffn_up.weight"},
                                    {"mlp.down_proj.weight", "ffn_down.weight"}};
constexpr std::string_view kLayerPrefix = "model.layers.";
// Frequencies that old checkpoints store although the configuration gives them.
constexpr std::string_view kDerivedSuffix = ".self_attn.rotary_emb.inv_freq";
constexpr std::string_view kHead = "lm_head.weight";

std::string canonical_name(std::string_view name) {
  for (const NamePair& pair : kModelNames) {
    if (name == pair.theirs) return std::string(pair.ours);
  }
  if (!name.starts_with(kLayerPrefix)) return std::string(name);
  const std::string_view rest = name.substr(kLayerPrefix.size());
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return std::string(name);
  for (const NamePair& pair : kLayerNames) {
    if (rest.substr(dot + 1) == pair.theirs) {
      return str_cat("blk.", rest.substr(0, dot), ".", pair.ours);
    }
  }
  return std::string(name);
}

GgmlType ggml_type(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF32:
      return GgmlType::kF32;
    case SafetensorsType::kF16:
      return GgmlType::kF16;
    case SafetensorsType::kBf16:
      return GgmlType::kBf16;
  }
  return GgmlType::kF32;
}

// The weights' files, and in which of them each tensor is.
struct Weights {
  Shards shards;
  std::map<std::string, const SafetensorsFile*> shard_of;
};

absl::StatusOr<const SafetensorsFile*> open_shard(const std::string& folder,
                                                  const std::string& name, Shards& shards) {
  std::shared_ptr<const SafetensorsFile>& shard = shards[name];
  if (shard == nullptr) {
    RAG_ASSIGN_OR_RETURN(shard, SafetensorsFile::open(str_cat(folder, "/", name)));
  }
  return shard.get();
}

absl::StatusOr<Weights> open_weights(const std::string& folder) {
  Weights weights;
  const std::string path = folder + "/model.safetensors.index.json";
  if (!std::filesystem::exists(path)) {
    RAG_ASSIGN_OR_RETURN(const SafetensorsFile* file,
                         open_shard(folder, "model.safetensors", weights.shards));
    for (const std::string& tensor : file->names()) weights.shard_of.emplace(tensor, file);
    return weights;
  }
  RAG_ASSIGN_OR_RETURN(const JsonObject index, JsonObject::open(path));
  RAG_ASSIGN_OR_RETURN(const JsonObject map, index.get_object("weight_map"));
  for (const auto& [tensor, value] : map.json().items()) {
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    // A shard is a file of this folder, whatever an index may say.
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          str_cat(path, ": weight_map has a value that is not the name of a .safetensors file"));
    }
    RAG_ASSIGN_OR_RETURN(const SafetensorsFile* file, open_shard(folder, name, weights.shards));
    weights.shard_of.emplace(tensor, file);
    if (weights.shards.size() > kShardsMax) {
      return absl::InvalidArgumentError(
          str_cat(path, ": weight_map names more than ", kShardsMax, " files"));
    }
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelFiles>> open_safetensors_model(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const JsonObject json, JsonObject::open(path + "/config.json"));
  RAG_ASSIGN_OR_RETURN(ModelConfig config, read_json_config(json));
  const std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
  config.name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  RAG_ASSIGN_OR_RETURN(const bool tied, value_or(json.get_bool("tie_word_embeddings"), false));

  RAG_ASSIGN_OR_RETURN(Weights weights, open_weights(path));
  if (!tied && !weights.shard_of.contains(std::string(kHead))) {
    return absl::InvalidArgumentError(
        str_cat(path, ": tensor ", kHead, " is missing, and tie_word_embeddings is not true"));
  }
  std::vector<Tensor> tensors;
  for (const auto& [name, shard] : weights.shard_of) {
    if (name.ends_with(kDerivedSuffix) || (tied && name == kHead)) continue;
    RAG_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, shard->tensor(name));
    std::vector<uint64_t> dimensions(tensor->shape.rbegin(), tensor->shape.rend());
    tensors.push_back(
        {canonical_name(name), ggml_type(tensor->type), std::move(dimensions), tensor->data});
  }
  return std::make_shared<SafetensorsModel>(path, std::move(config), std::move(tensors),
                                            std::move(weights.shards));
}

}  // namespace ragcache
