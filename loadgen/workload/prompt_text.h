#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loadgen/workload/corpus.h"

namespace ragcache::loadgen {

// A document's segment of a prompt: PromptFormat::document encodes this.
std::string document_text(std::string_view title, std::string_view text);

// The prompt of a server that knows no documents: these, then the question. The same documents in
// the same order give texts that begin alike.
std::string compose_prompt(const std::vector<const CorpusDocument*>& documents,
                           std::string_view question);

}  // namespace ragcache::loadgen
