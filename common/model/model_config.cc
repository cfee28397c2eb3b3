#include "common/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kHeadDimMax = 512;
constexpr uint64_t kWidthMax = 1 << 17;
constexpr uint64_t kVocabularyMax = 1 << 21;
constexpr uint64_t kContextTokensMax = 1 << 20;
constexpr double kRopeBaseDefault = 10000.0;
constexpr double kRopeBaseMax = 1e12;
constexpr double kRopeFactorMax = 1e6;

// The same quantities under the names of one format.
struct FieldNames {
  std::string layers;
  std::string heads;
  std::string kv_heads;
  std::string width;
  std::string feed_forward;
  std::string context;
  std::string head_dim;
  std::string sliding_window;
  std::string rms_epsilon;
};

template <typename Source>
absl::StatusOr<int64_t> read_count(const Source& source, const std::string& field, uint64_t max) {
  RAG_ASSIGN_OR_RETURN(const uint64_t value, source.get_uint(field));
  if (value == 0 || value > max) {
    return absl::InvalidArgumentError(str_cat(field, " is ", value, ", must be in 1..", max));
  }
  return static_cast<int64_t>(value);
}

// What both formats say in the same way. Source: GgufFile or JsonObject.
template <typename Source>
absl::Status read_shape(const Source& source, const FieldNames& names, ModelConfig& config) {
  RAG_ASSIGN_OR_RETURN(config.n_layers, read_count(source, names.layers, kLayersMax));
  RAG_ASSIGN_OR_RETURN(config.n_heads, read_count(source, names.heads, kHeadsMax));
  RAG_ASSIGN_OR_RETURN(config.n_kv_heads,
                       value_or(read_count(source, names.kv_heads, kHeadsMax), config.n_heads));
  RAG_ASSIGN_OR_RETURN(config.width, read_count(source, names.width, kWidthMax));
  RAG_ASSIGN_OR_RETURN(config.feed_forward_width,
                       read_count(source, names.feed_forward, kWidthMax));
  RAG_ASSIGN_OR_RETURN(config.context_tokens, read_count(source, names.context, kContextTokensMax));
  if (config.n_heads % config.n_kv_heads != 0) {
    return absl::InvalidArgumentError(str_cat(names.heads, " is ", config.n_heads,
                                              ", must be a multiple of ", names.kv_heads, ", ",
                                              config.n_kv_heads));
  }
  RAG_ASSIGN_OR_RETURN(config.head_dim,
                       value_or(read_count(source, names.head_dim, kHeadDimMax), int64_t{0}));
  if (config.head_dim == 0) {
    if (config.width % config.n_heads != 0) {
      return absl::InvalidArgumentError(str_cat(names.width, " is ", config.width,
                                                ", must be a multiple of ", names.heads, ", ",
                                                config.n_heads));
    }
    config.head_dim = config.width / config.n_heads;
  }
  if (config.head_dim % 16 != 0 || config.head_dim > static_cast<int64_t>(kHeadDimMax)) {
    return absl::InvalidArgumentError(str_cat("the head size is ", config.head_dim,
                                              ", must be a multiple of 16 up to ", kHeadDimMax));
  }
  RAG_ASSIGN_OR_RETURN(
      const int64_t window,
      value_or(read_count(source, names.sliding_window, uint64_t{1} << 40), int64_t{1} << 40));
  config.context_tokens = std::min(config.context_tokens, window);
  RAG_ASSIGN_OR_RETURN(const double epsilon, source.get_float(names.rms_epsilon));
  if (!(epsilon > 0 && epsilon < 1)) {
    return absl::InvalidArgumentError(
        str_cat(names.rms_epsilon, " is ", epsilon, ", must be in (0, 1)"));
  }
  config.rms_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status set_rope_base(const std::string& field, double base, ModelConfig& config) {
  if (!(base > 1 && base < kRopeBaseMax)) {
    return absl::InvalidArgumentError(
        str_cat(field, " is ", base, ", must be in (1, ", kRopeBaseMax, ")"));
  }
  config.rope_base = base;
  return absl::OkStatus();
}

absl::Status set_vocabulary(const std::string& field, uint64_t size, ModelConfig& config) {
  if (size == 0 || size > kVocabularyMax) {
    return absl::InvalidArgumentError(
        str_cat(field, " is ", size, ", must be in 1..", kVocabularyMax));
  }
  config.vocabulary = static_cast<int64_t>(size);
  return absl::OkStatus();
}

// ---- GGUF

absl::Status read_gguf_rope(const GgufFile& file, const std::string& architecture,
                            ModelConfig& config) {
  const std::string base = architecture + ".rope.freq_base";
  RAG_ASSIGN_OR_RETURN(const double value, value_or(file.get_float(base), kRopeBaseDefault));
  RAG_RETURN_IF_ERROR(set_rope_base(base, value, config));

  const std::string scaling = architecture + ".rope.scaling.type";
  RAG_ASSIGN_OR_RETURN(const std::string type,
                       value_or(file.get_string(scaling), std::string("none")));
  if (type == "linear") {
    const std::string field = architecture + ".rope.scaling.factor";
    RAG_ASSIGN_OR_RETURN(const double factor, file.get_float(field));
    if (!(factor >= 1 && factor <= kRopeFactorMax)) {
      return absl::InvalidArgumentError(
          str_cat(field, " is ", factor, ", must be in 1..", kRopeFactorMax));
    }
    config.rope_factors.assign(config.head_dim / 2, static_cast<float>(factor));
  } else if (type != "none") {
    return absl::UnimplementedError(
        str_cat(scaling, " is \"", type, "\", only \"none\" and \"linear\" are known"));
  }

  const absl::StatusOr<const Tensor*> factors = file.tensor(kRopeFactorsTensor);
  if (!factors.ok()) return absl::OkStatus();
  const auto n = static_cast<uint64_t>(config.head_dim / 2);
  if ((*factors)->type != GgmlType::kF32 || (*factors)->dimensions != std::vector<uint64_t>{n}) {
    return absl::InvalidArgumentError(
        str_cat("tensor ", kRopeFactorsTensor, " is not ", n, " numbers of type F32"));
  }
  config.rope_factors.resize(n);
  std::memcpy(config.rope_factors.data(), (*factors)->data.data(), (*factors)->data.size());
  for (const float factor : config.rope_factors) {
    if (!(factor >= 1e-3 && factor <= kRopeFactorMax)) {
      return absl::InvalidArgumentError(str_cat("tensor ", kRopeFactorsTensor, " has the element ",
                                                factor, ", must be in 1e-3..", kRopeFactorMax));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> gguf_config(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const std::string architecture, file.get_string("general.architecture"));
  if (architecture != "llama" && architecture != "qwen2") {
    return absl::UnimplementedError(str_cat("general.architecture is \"", architecture,
                                            "\", only \"llama\" and \"qwen2\" are known"));
  }
  RAG_ASSIGN_OR_RETURN(const uint64_t splits, value_or(file.get_uint("split.count"), uint64_t{1}));
  if (splits > 1) {
    return absl::UnimplementedError(
        str_cat("split.count is ", splits, ": join the parts into one file"));
  }
  RAG_ASSIGN_OR_RETURN(const uint64_t experts,
                       value_or(file.get_uint(architecture + ".expert_count"), uint64_t{0}));
  if (experts > 0) {
    return absl::UnimplementedError(
        str_cat(architecture, ".expert_count is ", experts, ": mixtures of experts are not known"));
  }
  const auto field = [&](const char* name) { return str_cat(architecture, ".", name); };
  ModelConfig config;
  RAG_RETURN_IF_ERROR(read_shape(file,
                                 {.layers = field("block_count"),
                                  .heads = field("attention.head_count"),
                                  .kv_heads = field("attention.head_count_kv"),
                                  .width = field("embedding_length"),
                                  .feed_forward = field("feed_forward_length"),
                                  .context = field("context_length"),
                                  .head_dim = field("attention.key_length"),
                                  .sliding_window = field("attention.sliding_window"),
                                  .rms_epsilon = field("attention.layer_norm_rms_epsilon")},
                                 config));
  for (const char* name : {"attention.value_length", "rope.dimension_count"}) {
    RAG_ASSIGN_OR_RETURN(const uint64_t length, value_or(file.get_uint(field(name)),
                                                         static_cast<uint64_t>(config.head_dim)));
    if (length != static_cast<uint64_t>(config.head_dim)) {
      return absl::InvalidArgumentError(
          str_cat(field(name), " is ", length, ", must be the head size ", config.head_dim));
    }
  }
  RAG_RETURN_IF_ERROR(read_gguf_rope(file, architecture, config));
  RAG_ASSIGN_OR_RETURN(const Tensor* embedding, file.tensor("token_embd.weight"));
  if (embedding->dimensions.size() != 2) {
    return absl::InvalidArgumentError("tensor token_embd.weight does not have two dimensions");
  }
  RAG_RETURN_IF_ERROR(
      set_vocabulary("dimension 1 of token_embd.weight", embedding->dimensions[1], config));
  // llama.cpp's converter reorders the rows for architecture llama alone.
  if (architecture == "llama") config.rotary_rows = RotaryRows::kNeighbours;
  config.qkv_bias = architecture == "qwen2";
  return config;
}

// ---- config.json

// The scaling of LLaMA 3: long waves are stretched by a factor, short ones stay, and between the
// two it changes evenly.
absl::Status set_llama3_factors(const JsonObject& scaling, ModelConfig& config) {
  RAG_ASSIGN_OR_RETURN(const double factor, scaling.get_float("factor"));
  RAG_ASSIGN_OR_RETURN(const double low, scaling.get_float("low_freq_factor"));
  RAG_ASSIGN_OR_RETURN(const double high, scaling.get_float("high_freq_factor"));
  RAG_ASSIGN_OR_RETURN(const double original,
                       scaling.get_float("original_max_position_embeddings"));
  if (!(factor >= 1 && factor <= kRopeFactorMax && low > 0 && high > low && original > 0)) {
    return absl::InvalidArgumentError(
        str_cat(scaling.path(), ": RoPE scaling llama3 must have factor in 1..", kRopeFactorMax,
                ", 0 < low_freq_factor < high_freq_factor and "
                "original_max_position_embeddings > 0"));
  }
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double frequency =
        std::pow(config.rope_base, -2.0 * static_cast<double>(i) / config.head_dim);
    const double waves = original * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((waves - low) / (high - low), 0.0, 1.0);
    config.rope_factors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
  }
  return absl::OkStatus();
}

absl::Status read_json_rope(const JsonObject& json, ModelConfig& config) {
  // transformers 5 has base and scaling in rope_parameters, earlier versions apart.
  const bool joined = json.has("rope_parameters");
  absl::StatusOr<JsonObject> scaling = json.get_object(joined ? "rope_parameters" : "rope_scaling");
  if (!scaling.ok() && !absl::IsNotFound(scaling.status())) return scaling.status();
  RAG_ASSIGN_OR_RETURN(
      const double base,
      value_or((joined ? *scaling : json).get_float("rope_theta"), kRopeBaseDefault));
  RAG_RETURN_IF_ERROR(set_rope_base("rope_theta", base, config));
  if (!scaling.ok()) return absl::OkStatus();
  RAG_ASSIGN_OR_RETURN(
      const std::string type,
      value_or(scaling->get_string(scaling->has("rope_type") ? "rope_type" : "type"),
               std::string("default")));
  if (type == "default") return absl::OkStatus();
  if (type == "llama3") return set_llama3_factors(*scaling, config);
  if (type == "linear") {
    RAG_ASSIGN_OR_RETURN(const double factor, scaling->get_float("factor"));
    if (!(factor >= 1 && factor <= kRopeFactorMax)) {
      return absl::InvalidArgumentError(str_cat(json.path(), ": the RoPE scaling factor is ",
                                                factor, ", must be in 1..", kRopeFactorMax));
    }
    config.rope_factors.assign(config.head_dim / 2, static_cast<float>(factor));
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      str_cat(json.path(), ": the RoPE scaling is \"", type,
              "\", only \"default\", \"linear\" and \"llama3\" are known"));
}

absl::StatusOr<ModelConfig> json_config(const JsonObject& json) {
  RAG_ASSIGN_OR_RETURN(const std::string type, json.get_string("model_type"));
  if (type != "llama" && type != "mistral" && type != "qwen2") {
    return absl::UnimplementedError(str_cat(
        "model_type is \"", type, "\", only \"llama\", \"mistral\" and \"qwen2\" are known"));
  }
  if (json.has("quantization_config")) {
    return absl::UnimplementedError(
        "quantization_config: quantised weights are read from GGUF files alone");
  }
  RAG_ASSIGN_OR_RETURN(const std::string activation,
                       value_or(json.get_string("hidden_act"), std::string("silu")));
  if (activation != "silu") {
    return absl::UnimplementedError(
        str_cat("hidden_act is \"", activation, "\", only \"silu\" is known"));
  }
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    RAG_ASSIGN_OR_RETURN(const bool bias, value_or(json.get_bool(field), false));
    if (bias) return absl::UnimplementedError(str_cat(field, " is true, which is not known"));
  }
  ModelConfig config;
  // qwen2 has the field always, and says apart whether it counts.
  RAG_ASSIGN_OR_RETURN(const bool windowed,
                       value_or(json.get_bool("use_sliding_window"), type != "qwen2"));
  RAG_RETURN_IF_ERROR(read_shape(json,
                                 {.layers = "num_hidden_layers",
                                  .heads = "num_attention_heads",
                                  .kv_heads = "num_key_value_heads",
                                  .width = "hidden_size",
                                  .feed_forward = "intermediate_size",
                                  .context = "max_position_embeddings",
                                  .head_dim = "head_dim",
                                  .sliding_window = windowed ? "sliding_window" : "",
                                  .rms_epsilon = "rms_norm_eps"},
                                 config));
  RAG_RETURN_IF_ERROR(read_json_rope(json, config));
  RAG_ASSIGN_OR_RETURN(const uint64_t vocabulary, json.get_uint("vocab_size"));
  RAG_RETURN_IF_ERROR(set_vocabulary("vocab_size", vocabulary, config));
  config.qkv_bias = type == "qwen2";
  return config;
}

absl::StatusOr<ModelConfig> with_path(absl::StatusOr<ModelConfig> config, const std::string& path) {
  if (config.ok()) return config;
  std::string message(config.status().message());
  if (message.find(path) == std::string::npos) message = str_cat(path, ": ", message);
  // A field that is missing is a fault of the file.
  const bool unknown = absl::IsUnimplemented(config.status());
  return unknown ? absl::UnimplementedError(message) : absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<ModelConfig> read_gguf_config(const GgufFile& file) {
  return with_path(gguf_config(file), file.path());
}

absl::StatusOr<ModelConfig> read_json_config(const JsonObject& config) {
  return with_path(json_config(config), config.path());
}

}  // namespace ragcache
