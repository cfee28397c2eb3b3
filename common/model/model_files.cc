#include "common/model/model_files.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <utility>

#include "common/model/formats.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/chat_template.h"

namespace ragcache {
namespace {

// Which file or folder a path leads to, and in which state.
using FileIdentity = std::array<int64_t, 5>;

FileIdentity identity_of(const struct stat& info) {
  return {static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino), info.st_size,
          info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

struct OpenModels {
  std::mutex mutex;  // held while a model is opened: the others want the same one
  std::map<FileIdentity, std::weak_ptr<const ModelFiles>> models;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelFiles>> ModelFiles::open(const std::string& path) {
  static OpenModels* const open = new OpenModels;
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, str_cat("cannot open the model ", path));
  }
  const std::lock_guard lock(open->mutex);
  std::erase_if(open->models, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const ModelFiles>& known = open->models[identity_of(info)];
  if (auto files = known.lock()) return files;
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<const ModelFiles> opened, S_ISDIR(info.st_mode)
                                                                     ? open_safetensors_model(path)
                                                                     : open_gguf_model(path));
  known = opened;
  return opened;
}

ModelFiles::ModelFiles(std::string path, ModelConfig config, std::vector<Tensor> tensors)
    : path_(std::move(path)), config_(std::move(config)), tensors_(std::move(tensors)) {
  for (const Tensor& tensor : tensors_) tensor_by_name_.emplace(tensor.name, &tensor);
}

absl::StatusOr<const Tensor*> ModelFiles::tensor(std::string_view name) const {
  const auto found = tensor_by_name_.find(name);
  if (found == tensor_by_name_.end()) {
    return absl::NotFoundError(str_cat(path_, " has no tensor ", name));
  }
  return found->second;
}

const Digest& ModelFiles::fingerprint() const {
  std::call_once(hashed_, [this] {
    Sha256 digest;
    hash(digest);
    fingerprint_ = digest.finish();
  });
  return fingerprint_;
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> ModelFiles::tokenizer() const {
  const std::lock_guard lock(mutex_);
  if (!tokenizer_.has_value()) tokenizer_ = load_tokenizer();
  return *tokenizer_;
}

absl::StatusOr<std::shared_ptr<const PromptFormat>> ModelFiles::prompt_format(
    std::string_view chat_template) const {
  RAG_ASSIGN_OR_RETURN(auto tokenizer, this->tokenizer());
  RAG_ASSIGN_OR_RETURN(const std::string own, load_chat_template());
  auto format = [&]() -> absl::StatusOr<std::shared_ptr<const PromptFormat>> {
    RAG_ASSIGN_OR_RETURN(const ChatTemplate chosen,
                         choose_chat_template(chat_template, own, *tokenizer));
    return PromptFormat::create(tokenizer, chosen);
  }();
  if (format.ok()) return format;
  return absl::Status(format.status().code(), str_cat(path_, ": ", format.status().message()));
}

}  // namespace ragcache
