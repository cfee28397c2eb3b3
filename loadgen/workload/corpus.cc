#include "loadgen/workload/corpus.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/json_fields.h"
#include "loadgen/workload/prompt_text.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/squad.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

absl::StatusOr<std::vector<CorpusDocument>> read_leads(const std::string& path, const json& leads) {
  std::vector<CorpusDocument> documents;
  for (const auto& [title, lead] : leads.items()) {
    auto extract = lead.is_object() ? string_of(lead, "extract")
                                    : absl::InvalidArgumentError("must be an object");
    if (!extract.ok()) {
      return absl::InvalidArgumentError(
          str_cat(path, ": ", title, ": ", extract.status().message()));
    }
    documents.push_back({.id = "lead/" + title, .title = title, .text = *std::move(extract)});
  }
  return documents;
}

}  // namespace

absl::StatusOr<std::vector<CorpusDocument>> read_corpus(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  const json whole = json::parse(text, nullptr, false);
  if (whole.is_object() && is_squad(whole)) {
    Squad squad;
    RAG_RETURN_IF_ERROR(add_squad(path, whole, squad));
    return std::move(squad.paragraphs);
  }
  if (whole.is_object() && !whole.contains("text")) return read_leads(path, whole);
  std::vector<CorpusDocument> documents;
  RAG_RETURN_IF_ERROR(for_each_json_line(path, text, [&](const json& line) -> absl::Status {
    CorpusDocument document;
    RAG_ASSIGN_OR_RETURN(document.id, string_of(line, "id"));
    RAG_ASSIGN_OR_RETURN(document.text, string_of(line, "text"));
    if (line.contains("title")) {
      RAG_ASSIGN_OR_RETURN(document.title, string_of(line, "title"));
    }
    documents.push_back(std::move(document));
    return absl::OkStatus();
  }));
  return documents;
}

std::vector<CorpusDocument> join_neighbours(std::vector<CorpusDocument> documents,
                                            uint32_t max_tokens, std::vector<uint32_t>* places) {
  std::vector<CorpusDocument> joined;
  for (CorpusDocument& document : documents) {
    if (!joined.empty() && !document.title.empty() && joined.back().title == document.title &&
        joined.back().tokens + document.tokens <= max_tokens) {
      joined.back().text += "\n" + document.text;
      joined.back().tokens += document.tokens;
    } else {
      joined.push_back(std::move(document));
    }
    if (places != nullptr) places->push_back(static_cast<uint32_t>(joined.size() - 1));
  }
  return joined;
}

std::vector<CorpusDocument> make_corpus(std::vector<CorpusDocument> passages,
                                        const CorpusOptions& options, uint64_t seed,
                                        const TokenCounter& count_tokens,
                                        std::vector<std::string>* ids) {
  for (size_t i = 0; i < passages.size(); ++i) {
    passages[i].tokens = count_tokens(passages[i].text);
    if (options.on_progress) options.on_progress(i + 1, passages.size());
  }
  std::vector<uint32_t> places;
  std::vector<CorpusDocument> documents =
      join_neighbours(std::move(passages), options.doc_tokens, &places);
  if (ids != nullptr) {
    for (const uint32_t place : places) ids->push_back(documents[place].id);
  }
  std::erase_if(documents, [&](const CorpusDocument& document) {
    return document.tokens < options.min_doc_tokens;
  });
  sample(documents, options.documents, seed);
  for (CorpusDocument& document : documents) {
    document.tokens = count_tokens(document_text(document.title, document.text));
  }
  return documents;
}

absl::StatusOr<std::vector<CorpusDocument>> read_corpora(const CorpusOptions& options,
                                                         uint64_t seed,
                                                         const TokenCounter& count_tokens) {
  std::vector<CorpusDocument> passages;
  for (const std::string& path : options.paths) {
    RAG_ASSIGN_OR_RETURN(std::vector<CorpusDocument> more, read_corpus(path));
    std::move(more.begin(), more.end(), std::back_inserter(passages));
  }
  return make_corpus(std::move(passages), options, seed, count_tokens);
}

}  // namespace ragcache::loadgen
