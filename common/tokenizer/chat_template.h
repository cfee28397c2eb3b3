#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

// The prompt formats that models of the LLaMA family were trained on.
enum class ChatTemplate { kChatMl, kLlama2, kMistral, kLlama3 };

std::string_view name_of(ChatTemplate chat_template);

// What the option chat_template may be: auto and the names.
std::vector<std::string> chat_template_choices();

// The template that `choice` names; for auto the one whose markers the model's own (Jinja) template
// has, or if it has none the one whose special tokens its vocabulary has. FAILED_PRECONDITION
// names the choices if that is none of them.
absl::StatusOr<ChatTemplate> choose_chat_template(std::string_view choice, std::string_view own,
                                                  const Tokenizer& tokenizer);

}  // namespace ragcache
