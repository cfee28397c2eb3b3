#include "services/retrieval/embed/bert_config.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kTokensDefault = 256;

absl::StatusOr<Json> read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::FailedPreconditionError(str_cat("cannot open ", path));
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(str_cat(path, " is no JSON object"));
  return json;
}

// One JSON object; remembers the first field that does not fit.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}

  uint32_t number(const char* name, uint32_t min, uint32_t max) {
    const auto field = json_.find(name);
    if (field == json_.end() || !field->is_number_integer()) {
      fail(str_cat(name, " is missing or no integer"));
      return min;
    }
    const auto value = field->get<int64_t>();
    if (value < min || value > max) {
      fail(str_cat(name, "=", value, " is not in ", min, "..", max));
      return min;
    }
    return static_cast<uint32_t>(value);
  }

  void expect(const char* name, const Json& wanted, const Json& absent) {
    const Json& value = json_.contains(name) ? json_[name] : absent;
    if (value != wanted) fail(str_cat(name, "=", value.dump(), ", only ", wanted.dump(), " works"));
  }

  double small_number(const char* name) {
    const auto field = json_.find(name);
    if (field == json_.end() || !field->is_number() || field->get<double>() <= 0 ||
        field->get<double>() > 0.1) {
      fail(str_cat(name, " is missing or not in (0, 0.1]"));
      return 0;
    }
    return field->get<double>();
  }

  void fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(str_cat(path_, ": ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& json_;
  const std::string path_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<BertConfig> read_bert_config(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    return absl::FailedPreconditionError(
        str_cat("embedding_model: ", folder, " is no folder; deploy/setup.sh fetches the model"));
  }
  const std::string path = folder + "/config.json";
  RAG_ASSIGN_OR_RETURN(const Json json, read_json(path));
  Fields fields(json, path);
  BertConfig config;
  fields.expect("model_type", "bert", "");
  fields.expect("hidden_act", "gelu", "gelu");
  fields.expect("position_embedding_type", "absolute", "absolute");
  config.vocabulary_size = fields.number("vocab_size", 1, 1 << 20);
  config.hidden_size = fields.number("hidden_size", 1, 8192);
  config.n_layers = fields.number("num_hidden_layers", 1, 128);
  config.n_heads = fields.number("num_attention_heads", 1, 128);
  config.feed_forward_size = fields.number("intermediate_size", 1, 1 << 16);
  config.positions = fields.number("max_position_embeddings", 2, 1 << 16);
  config.norm_epsilon = fields.small_number("layer_norm_eps");
  if (config.hidden_size % config.n_heads != 0) {
    fields.fail(str_cat("hidden_size=", config.hidden_size,
                        " is no multiple of num_attention_heads=", config.n_heads));
  }
  RAG_RETURN_IF_ERROR(fields.status());

  config.max_tokens = std::min(kTokensDefault, config.positions);
  const std::string sentence_path = folder + "/sentence_bert_config.json";
  if (std::filesystem::exists(sentence_path)) {
    RAG_ASSIGN_OR_RETURN(const Json sentence, read_json(sentence_path));
    Fields sentence_fields(sentence, sentence_path);
    config.max_tokens = sentence_fields.number("max_seq_length", 2, config.positions);
    RAG_RETURN_IF_ERROR(sentence_fields.status());
  }
  const std::string pooling_path = folder + "/1_Pooling/config.json";
  if (std::filesystem::exists(pooling_path)) {
    RAG_ASSIGN_OR_RETURN(const Json pooling, read_json(pooling_path));
    Fields pooling_fields(pooling, pooling_path);
    pooling_fields.expect("pooling_mode_mean_tokens", true, false);
    pooling_fields.expect("pooling_mode_cls_token", false, false);
    pooling_fields.expect("pooling_mode_max_tokens", false, false);
    RAG_RETURN_IF_ERROR(pooling_fields.status());
  }
  return config;
}

}  // namespace ragcache::retrieval
