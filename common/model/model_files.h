#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "common/model/model_config.h"
#include "common/tokenizer/prompt_format.h"
#include "common/tokenizer/tokenizer.h"
#include "common/weights/tensor.h"

namespace ragcache {

// The files of one language model, whatever their format: a GGUF file, or a folder with
// config.json, model.safetensors (or model.safetensors.index.json and its shards), tokenizer.json
// or tokenizer.model, and tokenizer_config.json. Weights stay mapped for as long as the object
// lives. Immutable, so any thread may use it.
class ModelFiles {
 public:
  // While an object for a path lives, and the path has not been replaced, others who open it get
  // the same one: components of one process parse and hash a model once. Errors name file, field
  // and bound; UNIMPLEMENTED names an architecture or form that this project does not know.
  static absl::StatusOr<std::shared_ptr<const ModelFiles>> open(const std::string& path);
  virtual ~ModelFiles() = default;
  ModelFiles(const ModelFiles&) = delete;
  ModelFiles& operator=(const ModelFiles&) = delete;

  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }

  // Tensors go by GGUF's names ("blk.0.attn_q.weight") in both formats. A tensor of a folder that
  // has no such name keeps its own.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // NOT_FOUND if there is none of that name.
  absl::StatusOr<const Tensor*> tensor(std::string_view name) const;

  // SHA-256 over the content of every file: the identity of the model. The first call reads all
  // of it, the others wait for that.
  const Digest& fingerprint() const;
  // Read at the first call.
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer() const;
  // `chat_template`: auto, or the name of a template (chat_template.h), which overrides the
  // model's own.
  absl::StatusOr<std::shared_ptr<const PromptFormat>> prompt_format(
      std::string_view chat_template) const;

 protected:
  // Tensors that the configuration has read are not among `tensors`.
  ModelFiles(std::string path, ModelConfig config, std::vector<Tensor> tensors);

  virtual void hash(Sha256& digest) const = 0;
  virtual absl::StatusOr<std::shared_ptr<const Tokenizer>> load_tokenizer() const = 0;
  // The model's own template; empty if it has none.
  virtual absl::StatusOr<std::string> load_chat_template() const = 0;

 private:
  // Constant after construction.
  const std::string path_;
  const ModelConfig config_;
  const std::vector<Tensor> tensors_;
  std::map<std::string_view, const Tensor*> tensor_by_name_;

  mutable std::once_flag hashed_;
  mutable Digest fingerprint_{};  // written once, under hashed_
  mutable std::mutex mutex_;
  mutable std::optional<absl::StatusOr<std::shared_ptr<const Tokenizer>>> tokenizer_;  // by mutex_
};

}  // namespace ragcache
