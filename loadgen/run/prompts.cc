#include "loadgen/run/prompts.h"

#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/prompt_text.h"

namespace ragcache::loadgen {

absl::StatusOr<Prompts> make_prompts(const Workload& workload, Retrieval retrieval, uint32_t top_k,
                                     const Search& search) {
  if (retrieval == Retrieval::kServer && !workload.retrieval) {
    return absl::InvalidArgumentError(str_cat("--retrieval: is server, must be named or before: ",
                                              workload.name, " names its documents"));
  }
  Prompts prompts;
  for (const WorkloadRequest& asked : workload.requests) {
    Request& request = prompts.requests.emplace_back();
    request.max_tokens = asked.max_tokens;
    // A recorded length holds, whatever the model makes of words that were made up.
    request.ignore_eos = workload.substituted;
    ChatPrompt prompt{.text = asked.question, .retrieval = {}};
    std::vector<std::string>& ids = prompts.documents.emplace_back();
    if (retrieval == Retrieval::kServer) {
      prompt.retrieval = ChatPrompt::Retrieval{.top_k = top_k, .documents = {}};
      request.prompt = std::move(prompt);
      continue;
    }

    std::vector<CorpusDocument> found;
    std::vector<const CorpusDocument*> documents;
    if (workload.retrieval) {
      RAG_ASSIGN_OR_RETURN(found, search(asked.question));
      for (const CorpusDocument& document : found) documents.push_back(&document);
    } else {
      for (const uint32_t place : asked.documents) documents.push_back(&workload.documents[place]);
    }
    for (const CorpusDocument* document : documents) ids.push_back(document->id);
    if (retrieval == Retrieval::kBefore) {
      prompt.text = compose_prompt(documents, asked.question);
    } else if (!ids.empty()) {
      prompt.retrieval = ChatPrompt::Retrieval{.top_k = 0, .documents = ids};
    }
    request.prompt = std::move(prompt);
  }
  return prompts;
}

}  // namespace ragcache::loadgen
