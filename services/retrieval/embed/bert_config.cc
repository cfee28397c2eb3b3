#include "services/retrieval/embed/bert_config.h"

#include <algorithm>
#include <filesystem>

#include "common/json/json_object.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::retrieval {
namespace {

constexpr uint32_t kTokensDefault = 256;

// One JSON object; remembers the first field that does not fit.
class Fields {
 public:
  explicit Fields(const JsonObject& object) : object_(object) {}

  uint32_t number(const char* name, uint32_t min, uint32_t max) {
    const absl::StatusOr<uint64_t> value = object_.get_uint(name);
    if (!value.ok()) {
      fail(value.status());
      return min;
    }
    if (*value < min || *value > max) {
      fail(str_cat(name, "=", *value, " is not in ", min, "..", max));
      return min;
    }
    return static_cast<uint32_t>(*value);
  }

  double small_number(const char* name) {
    const absl::StatusOr<double> value = object_.get_float(name);
    if (!value.ok()) {
      fail(value.status());
      return 0;
    }
    if (*value <= 0 || *value > 0.1) fail(str_cat(name, "=", *value, " is not in (0, 0.1]"));
    return *value;
  }

  void expect(const char* name, const char* wanted, const char* absent) {
    const absl::StatusOr<std::string> value =
        value_or<std::string>(object_.get_string(name), absent);
    if (!value.ok()) return fail(value.status());
    if (*value != wanted) fail(str_cat(name, "=", *value, ", only ", wanted, " works"));
  }

  void expect(const char* name, bool wanted) {
    const absl::StatusOr<bool> value = value_or(object_.get_bool(name), false);
    if (!value.ok()) return fail(value.status());
    if (*value != wanted) fail(str_cat(name, " must be ", wanted ? "true" : "false"));
  }

  void fail(const std::string& what) {
    fail(absl::InvalidArgumentError(str_cat(object_.path(), ": ", what)));
  }
  const absl::Status& status() const { return status_; }

 private:
  void fail(const absl::Status& status) { status_.Update(status); }

  const JsonObject object_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<BertConfig> read_bert_config(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    return absl::FailedPreconditionError(
        str_cat("embedding_model: ", folder, " is no folder; deploy/setup.sh fetches the model"));
  }
  const std::string path = folder + "/config.json";
  RAG_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::open(path));
  Fields fields(object);
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
    RAG_ASSIGN_OR_RETURN(const JsonObject sentence, JsonObject::open(sentence_path));
    Fields sentence_fields(sentence);
    config.max_tokens = sentence_fields.number("max_seq_length", 2, config.positions);
    RAG_RETURN_IF_ERROR(sentence_fields.status());
  }
  const std::string pooling_path = folder + "/1_Pooling/config.json";
  if (std::filesystem::exists(pooling_path)) {
    RAG_ASSIGN_OR_RETURN(const JsonObject pooling, JsonObject::open(pooling_path));
    Fields pooling_fields(pooling);
    pooling_fields.expect("pooling_mode_mean_tokens", true);
    pooling_fields.expect("pooling_mode_cls_token", false);
    pooling_fields.expect("pooling_mode_max_tokens", false);
    RAG_RETURN_IF_ERROR(pooling_fields.status());
  }
  return config;
}

}  // namespace ragcache::retrieval
