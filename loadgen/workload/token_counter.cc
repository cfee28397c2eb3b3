#include "loadgen/workload/token_counter.h"

#include "common/model/model_files.h"
#include "common/status.h"

namespace ragcache::loadgen {

absl::StatusOr<TokenCounter> token_counter(const std::string& model) {
  RAG_ASSIGN_OR_RETURN(const auto files, ModelFiles::open(model));
  RAG_ASSIGN_OR_RETURN(const auto tokenizer, files->tokenizer());
  return [tokenizer](std::string_view text) {
    return static_cast<uint32_t>(tokenizer->encode(text).size());
  };
}

}  // namespace ragcache::loadgen
