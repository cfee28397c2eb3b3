#include <filesystem>
#include <utility>

#include "common/model/formats.h"
#include "common/status.h"
#include "common/weights/gguf.h"

namespace ragcache {
namespace {

class GgufModel final : public ModelFiles {
 public:
  GgufModel(std::shared_ptr<const GgufFile> file, ModelConfig config, std::vector<Tensor> tensors)
      : ModelFiles(file->path(), std::move(config), std::move(tensors)), file_(std::move(file)) {}

 private:
  void hash(Sha256& digest) const override { digest.update(file_->bytes()); }

  absl::StatusOr<std::shared_ptr<const Tokenizer>> load_tokenizer() const override {
    return load_gguf_tokenizer(*file_);
  }

  absl::StatusOr<std::string> load_chat_template() const override {
    return value_or(file_->get_string("tokenizer.chat_template"), std::string());
  }

  const std::shared_ptr<const GgufFile> file_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::open(path));
  RAG_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_config(*file));
  // The file's name tells model and quantisation; general.name is often that of a training run.
  config.name = std::filesystem::path(path).stem().string();
  std::vector<Tensor> tensors = file->tensors();
  std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == kRopeFactorsTensor; });
  return std::make_shared<GgufModel>(std::move(file), std::move(config), std::move(tensors));
}

}  // namespace ragcache
