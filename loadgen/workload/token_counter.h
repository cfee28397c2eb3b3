#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ragcache::loadgen {

// Tokens of a text that is encoded on its own.
using TokenCounter = std::function<uint32_t(std::string_view text)>;

// By the tokenizer of a language model, a GGUF file or a folder.
absl::StatusOr<TokenCounter> token_counter(const std::string& model);

}  // namespace ragcache::loadgen
