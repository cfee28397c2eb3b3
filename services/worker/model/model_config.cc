#include "services/worker/model/model_config.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::worker {
namespace {

constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxHeadDim = 512;
constexpr uint64_t kMaxWidth = 1 << 17;
constexpr uint64_t kMaxVocabulary = 1 << 21;
constexpr uint64_t kMaxContextTokens = 1 << 20;

absl::StatusOr<int64_t> read_count(const GgufFile& file, const char* key, uint64_t max) {
  RAG_ASSIGN_OR_RETURN(const uint64_t value, file.get_uint(key));
  if (value == 0 || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", key, " is ", value, ", must be in 1..", max));
  }
  return static_cast<int64_t>(value);
}

absl::Status require(const GgufFile& file, bool condition, const std::string& what) {
  if (condition) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", what));
}

}  // namespace

absl::StatusOr<ModelConfig> read_model_config(const GgufFile& file) {
  RAG_ASSIGN_OR_RETURN(const std::string architecture, file.get_string("general.architecture"));
  if (architecture != "llama") {
    return absl::UnimplementedError(absl::StrCat(file.path(), ": general.architecture is \"",
                                                 architecture, "\", only \"llama\" is known"));
  }
  if (auto scaling = file.get_string("llama.rope.scaling.type");
      scaling.ok() && *scaling != "none") {
    return absl::UnimplementedError(absl::StrCat(file.path(), ": llama.rope.scaling.type is \"",
                                                 *scaling, "\", only \"none\" is known"));
  }
  ModelConfig config;
  // The file's name tells model and quantisation; general.name is often that of a training run.
  config.name = std::filesystem::path(file.path()).stem().string();
  RAG_ASSIGN_OR_RETURN(config.n_layers, read_count(file, "llama.block_count", kMaxLayers));
  RAG_ASSIGN_OR_RETURN(config.n_heads, read_count(file, "llama.attention.head_count", kMaxHeads));
  config.n_kv_heads = config.n_heads;
  auto kv_heads = read_count(file, "llama.attention.head_count_kv", kMaxHeads);
  if (kv_heads.ok()) {
    config.n_kv_heads = *kv_heads;
  } else if (!absl::IsNotFound(kv_heads.status())) {
    return kv_heads.status();
  }
  RAG_ASSIGN_OR_RETURN(config.width, read_count(file, "llama.embedding_length", kMaxWidth));
  RAG_ASSIGN_OR_RETURN(config.feed_forward_width,
                       read_count(file, "llama.feed_forward_length", kMaxWidth));
  RAG_ASSIGN_OR_RETURN(config.context_tokens,
                       read_count(file, "llama.context_length", kMaxContextTokens));
  RAG_RETURN_IF_ERROR(require(file, config.n_heads % config.n_kv_heads == 0,
                              "llama.attention.head_count must be a multiple of "
                              "llama.attention.head_count_kv"));
  if (auto length = read_count(file, "llama.attention.key_length", kMaxHeadDim); length.ok()) {
    config.head_dim = *length;
  } else if (absl::IsNotFound(length.status())) {
    RAG_RETURN_IF_ERROR(require(file, config.width % config.n_heads == 0,
                                "llama.embedding_length must be a multiple of "
                                "llama.attention.head_count"));
    config.head_dim = config.width / config.n_heads;
  } else {
    return length.status();
  }
  RAG_RETURN_IF_ERROR(require(
      file, config.head_dim % 16 == 0 && config.head_dim <= static_cast<int64_t>(kMaxHeadDim),
      absl::StrCat("the head size is ", config.head_dim, ", must be a multiple of 16 up to ",
                   kMaxHeadDim)));
  for (const char* key : {"llama.attention.value_length", "llama.rope.dimension_count"}) {
    auto length = file.get_uint(key);
    if (absl::IsNotFound(length.status())) continue;
    RAG_RETURN_IF_ERROR(length.status());
    RAG_RETURN_IF_ERROR(
        require(file, *length == static_cast<uint64_t>(config.head_dim),
                absl::StrCat(key, " is ", *length, ", must be the head size ", config.head_dim)));
  }

  config.rope_base = 10000.0;
  if (auto base = file.get_float("llama.rope.freq_base"); base.ok()) {
    config.rope_base = *base;
  } else if (!absl::IsNotFound(base.status())) {
    return base.status();
  }
  RAG_RETURN_IF_ERROR(require(file, config.rope_base > 1.0 && config.rope_base < 1e12,
                              "llama.rope.freq_base must be in (1, 1e12)"));
  RAG_ASSIGN_OR_RETURN(const double epsilon,
                       file.get_float("llama.attention.layer_norm_rms_epsilon"));
  RAG_RETURN_IF_ERROR(require(file, epsilon > 0.0 && epsilon < 1.0,
                              "llama.attention.layer_norm_rms_epsilon must be in (0, 1)"));
  config.rms_epsilon = static_cast<float>(epsilon);

  RAG_ASSIGN_OR_RETURN(const GgufTensor* embedding, file.tensor("token_embd.weight"));
  RAG_RETURN_IF_ERROR(require(file,
                              embedding->dimensions.size() == 2 && embedding->dimensions[1] > 0 &&
                                  embedding->dimensions[1] <= kMaxVocabulary,
                              absl::StrCat("token_embd.weight must have two dimensions, the "
                                           "second in 1..",
                                           kMaxVocabulary)));
  config.vocabulary = static_cast<int64_t>(embedding->dimensions[1]);
  return config;
}

}  // namespace ragcache::worker
