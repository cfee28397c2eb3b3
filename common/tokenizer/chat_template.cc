#include "common/tokenizer/chat_template.h"

#include <array>

#include "common/strings.h"

namespace ragcache {
namespace {

constexpr std::array kTemplates = {ChatTemplate::kChatMl, ChatTemplate::kLlama2,
                                   ChatTemplate::kMistral, ChatTemplate::kLlama3};
constexpr std::string_view kAuto = "auto";

absl::Status unknown(std::string_view what) {
  std::string names;
  for (const ChatTemplate chat_template : kTemplates) {
    names += str_cat(names.empty() ? "" : ", ", name_of(chat_template));
  }
  return absl::FailedPreconditionError(
      str_cat(what, ": set chat_template to the one that it was trained on (", names, ")"));
}

}  // namespace

std::string_view name_of(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::kChatMl:
      return "chatml";
    case ChatTemplate::kLlama2:
      return "llama2";
    case ChatTemplate::kMistral:
      return "mistral";
    case ChatTemplate::kLlama3:
      return "llama3";
  }
  return "";
}

std::vector<std::string> chat_template_choices() {
  std::vector<std::string> choices = {std::string(kAuto)};
  for (const ChatTemplate chat_template : kTemplates) choices.emplace_back(name_of(chat_template));
  return choices;
}

absl::StatusOr<ChatTemplate> choose_chat_template(std::string_view choice, std::string_view own,
                                                  const Tokenizer& tokenizer) {
  if (choice != kAuto) {
    for (const ChatTemplate chat_template : kTemplates) {
      if (choice == name_of(chat_template)) return chat_template;
    }
    return unknown(str_cat("there is no chat template \"", choice, "\""));
  }
  const auto has = [&](std::string_view marker) {
    return own.empty() ? tokenizer.special_token(marker).has_value()
                       : own.find(marker) != std::string_view::npos;
  };
  if (has("<|im_start|>")) return ChatTemplate::kChatMl;
  if (has("<|start_header_id|>")) return ChatTemplate::kLlama3;
  if (own.empty()) return unknown("the model has no chat template");
  // Later Mistral models have a system turn of its own, which is another format.
  if (has("[INST]") && !has("[SYSTEM_PROMPT]")) {
    return has("<<SYS>>") ? ChatTemplate::kLlama2 : ChatTemplate::kMistral;
  }
  return unknown("the model's own chat template is none of those known");
}

}  // namespace ragcache
