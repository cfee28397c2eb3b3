#include "loadgen/workload/prompt_text.h"

#include "common/strings.h"

namespace ragcache::loadgen {

std::string document_text(std::string_view title, std::string_view text) {
  return str_cat("\n\n", title, "\n", text);
}

std::string compose_prompt(const std::vector<const CorpusDocument*>& documents,
                           std::string_view question) {
  std::string prompt;
  for (const CorpusDocument* document : documents) {
    if (!document->title.empty()) prompt += document->title + "\n";
    prompt += document->text + "\n\n";
  }
  return prompt.append(question);
}

}  // namespace ragcache::loadgen
