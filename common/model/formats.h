#pragma once

#include <memory>
#include <string>

#include "common/model/model_files.h"

namespace ragcache {

// The formats behind ModelFiles::open(), which chooses by whether the path is a folder.
absl::StatusOr<std::shared_ptr<const ModelFiles>> open_gguf_model(const std::string& path);
absl::StatusOr<std::shared_ptr<const ModelFiles>> open_safetensors_model(const std::string& path);

}  // namespace ragcache
