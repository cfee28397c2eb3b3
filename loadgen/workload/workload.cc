#include "loadgen/workload/workload.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/questions.h"
#include "loadgen/workload/recording.h"
#include "loadgen/workload/sample.h"
#include "loadgen/workload/squad.h"

namespace ragcache::loadgen {
namespace {

uint32_t max_tokens_of(const WorkloadOptions& options, uint32_t otherwise) {
  return options.max_tokens > 0 ? options.max_tokens : otherwise;
}

// Puts what was asked into the seed's order, and keeps the first.
template <typename T>
void choose(std::vector<T>& questions, const WorkloadOptions& options) {
  shuffle(questions, options.seed);
  if (options.max_requests > 0 && questions.size() > options.max_requests) {
    questions.resize(options.max_requests);
  }
}

absl::StatusOr<Workload> read_questions_over_corpus(const WorkloadOptions& options,
                                                    uint32_t max_tokens) {
  Workload workload{.name = options.name, .retrieval = true};
  RAG_ASSIGN_OR_RETURN(std::vector<Question> questions,
                       read_questions(options.data, options.exclude));
  choose(questions, options);
  RAG_ASSIGN_OR_RETURN(workload.documents,
                       read_corpora(options.corpus, options.seed, options.count_tokens));
  for (Question& question : questions) {
    workload.requests.push_back({.question = std::move(question.text),
                                 .answers = std::move(question.answers),
                                 .max_tokens = max_tokens_of(options, max_tokens)});
  }
  return workload;
}

absl::StatusOr<Workload> mmlu(const WorkloadOptions& options) {
  return read_questions_over_corpus(options, 1);
}

absl::StatusOr<Workload> nq(const WorkloadOptions& options) {
  return read_questions_over_corpus(options, kAnswerTokens);
}

absl::StatusOr<Workload> squad(const WorkloadOptions& options) {
  Workload workload{.name = options.name, .retrieval = true};
  RAG_ASSIGN_OR_RETURN(Squad squad, read_squad(options.data));
  std::vector<std::string> ids;
  workload.documents = make_corpus(std::move(squad.paragraphs), options.corpus, options.seed,
                                   options.count_tokens, &ids);
  absl::flat_hash_map<std::string, uint32_t> places;
  for (size_t i = 0; i < workload.documents.size(); ++i) {
    places[workload.documents[i].id] = static_cast<uint32_t>(i);
  }
  std::erase_if(squad.questions, [&](const SquadQuestion& question) {
    return !places.contains(ids[question.paragraph]);
  });
  choose(squad.questions, options);
  for (SquadQuestion& question : squad.questions) {
    workload.requests.push_back({.question = std::move(question.text),
                                 .gold = places.at(ids[question.paragraph]),
                                 .answers = std::move(question.answers),
                                 .max_tokens = max_tokens_of(options, kAnswerTokens)});
  }
  return workload;
}

template <absl::StatusOr<std::vector<RecordedRequest>> (*read)(const std::string& path)>
absl::StatusOr<Workload> recording(const WorkloadOptions& options) {
  RAG_ASSIGN_OR_RETURN(std::vector<RecordedRequest> recorded, read(options.data));
  return substitute(std::move(recorded), options);
}

struct Format {
  std::string_view name;
  absl::StatusOr<Workload> (*read)(const WorkloadOptions& options);
};
constexpr Format kFormats[] = {
    {"mmlu", mmlu},
    {"nq", nq},
    {"squad", squad},
    {"ragpulse", recording<read_ragpulse>},
    {"mooncake", recording<read_mooncake>},
    {"azure", recording<read_azure>},
    {"zipf", zipf_workload},
};

}  // namespace

absl::StatusOr<Workload> read_workload(const WorkloadOptions& options) {
  RAG_CHECK(options.count_tokens != nullptr);
  std::string names;
  for (const Format& format : kFormats) {
    names += str_cat(names.empty() ? "" : ", ", format.name);
    if (format.name != options.name) continue;
    RAG_ASSIGN_OR_RETURN(Workload workload, format.read(options));
    if (workload.requests.empty()) {
      return absl::InvalidArgumentError(
          str_cat(options.data, ": gives no request, ", workload.left_out, " were too long"));
    }
    absl::flat_hash_set<std::string> ids;
    for (const CorpusDocument& document : workload.documents) {
      if (!ids.insert(document.id).second) {
        return absl::InvalidArgumentError(str_cat("documents: two have the id ", document.id));
      }
    }
    return workload;
  }
  return absl::InvalidArgumentError(
      str_cat("workload: is \"", options.name, "\", must be of ", names));
}

absl::Status check_size(const Workload& workload, uint64_t warm_up, uint64_t requests) {
  if (workload.requests.size() >= warm_up + requests) return absl::OkStatus();
  return absl::InvalidArgumentError(str_cat(
      "--requests: the workload has ", workload.requests.size(), " requests, fewer than --warm-up ",
      warm_up, " and --requests ", requests, " together"));
}

}  // namespace ragcache::loadgen
