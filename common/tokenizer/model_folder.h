#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

// The tokenizer of a model's folder: tokenizer.json, or where there is none tokenizer.model; what
// tokenizer_config.json says of BOS and EOS.
absl::StatusOr<std::shared_ptr<const Tokenizer>> load_folder_tokenizer(const std::string& folder);

// The model's own chat template: chat_template.jinja, or chat_template of tokenizer_config.json,
// of several the one named default. Empty if there is none.
absl::StatusOr<std::string> read_folder_chat_template(const std::string& folder);

}  // namespace ragcache
