#include "services/retrieval/router/generations.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/clock.h"
#include "common/log/log.h"
#include "common/random.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/retrieval/shard/message_file.h"
#include "services/retrieval/shard/wire.h"

namespace ragcache::retrieval {
namespace {

constexpr size_t kSampleBatch = 256;
constexpr double kProgressSeconds = 5;

TrainedInfo info_of(const IndexSpec& spec) {
  if (spec.trained.empty()) return {};
  const auto state = TrainedState::parse(spec.trained);
  return state.ok() ? state->info : TrainedInfo();
}

}  // namespace

Generations::Generations(std::string folder, const IndexOptions& options,
                         const Digest& embedding_model, DocumentStore& store, Added added)
    : folder_(std::move(folder)),
      options_(options),
      embedding_model_(embedding_model),
      store_(store),
      added_(std::move(added)) {}

Generations::~Generations() {
  stop_.request_stop();
  pool_.join();
}

std::string Generations::path_of(CorpusNumber corpus) const {
  return str_cat(folder_, "/", corpus, ".generations");
}

std::vector<Generation> Generations::read(CorpusNumber corpus) const {
  v1::Generations message;
  absl::Status status = read_message_file(path_of(corpus), message);
  std::vector<Generation> generations;
  for (const auto& generation : message.generations()) {
    absl::StatusOr<IndexSpec> spec = to_spec(generation.spec());
    if (!spec.ok()) {
      status = spec.status();
      break;
    }
    generations.push_back(
        {generation.number(), std::make_shared<const IndexSpec>(*std::move(spec))});
  }
  if (status.ok() && generations.size() <= 2) return generations;
  if (!absl::IsNotFound(status)) {
    log::warn("file not used; the indexes of the corpus begin anew",
              {{"file", path_of(corpus)}, {"reason", std::string(status.message())}});
  }
  return {};
}

absl::Status Generations::write(CorpusNumber corpus,
                                const std::vector<Generation>& generations) const {
  v1::Generations message;
  for (const Generation& generation : generations) {
    auto& added = *message.add_generations();
    added.set_number(generation.number);
    to_message(*generation.spec, *added.mutable_spec());
  }
  return write_message_file(path_of(corpus), message);
}

Generation Generations::next_generation(std::string trained) const {
  return {random_bits(), std::make_shared<const IndexSpec>(
                             IndexSpec{embedding_model_, options_, std::move(trained)})};
}

absl::StatusOr<std::vector<Generation>> Generations::open(CorpusNumber corpus) {
  std::vector<Generation> generations = read(corpus);
  // Vectors of another model are no longer in the store.
  std::erase_if(generations, [this](const Generation& generation) {
    return generation.spec->embedding_model != embedding_model_ ||
           generation.spec->options.dimension != options_.dimension;
  });
  if (generations.empty() || generations.back().spec->options != options_) {
    std::string trained;
    if (!generations.empty()) {
      const IndexSpec& last = *generations.back().spec;
      if (check_trained(info_of(last), options_).ok()) trained = last.trained;
      generations.resize(1);
    }
    generations.push_back(next_generation(std::move(trained)));
    RAG_RETURN_IF_ERROR(write(corpus, generations));
  }
  Corpus opened{.generations = generations};
  for (const Generation& generation : generations) {
    opened.trained.push_back(info_of(*generation.spec));
  }
  const std::lock_guard lock(mutex_);
  corpora_[corpus] = std::move(opened);
  return generations;
}

void Generations::close(CorpusNumber corpus) {
  {
    const std::lock_guard lock(mutex_);
    corpora_.erase(corpus);
  }
  std::error_code error;
  std::filesystem::remove(path_of(corpus), error);
}

std::string Generations::kind(CorpusNumber corpus) const {
  const std::lock_guard lock(mutex_);
  const auto found = corpora_.find(corpus);
  if (found == corpora_.end()) return {};
  const TrainedInfo& trained = found->second.trained[0];
  if (trained.lists > 0) return trained.kind;
  const bool is_graph =
      found->second.generations[0].spec->options.kind == IndexOptions::Kind::kHnsw;
  return std::string(is_graph ? kHnswKind : kExactKind);
}

void Generations::settle(CorpusNumber corpus) {
  boost::asio::post(pool_, [this, corpus] { train(corpus); });
}

void Generations::wasteful(CorpusNumber corpus, uint64_t generation) {
  boost::asio::post(pool_, [this, corpus, generation] {
    std::string trained;
    {
      const std::lock_guard lock(mutex_);
      const auto found = corpora_.find(corpus);
      if (found == corpora_.end() || found->second.generations.size() > 1) return;
      const Generation& current = found->second.generations[0];
      if (current.number != generation) return;
      trained = current.spec->trained;
    }
    log::info("an index is built anew for what was removed of it", {{"corpus", corpus}});
    add(corpus, std::move(trained));
  });
}

void Generations::replaced(CorpusNumber corpus, uint64_t serving) {
  boost::asio::post(pool_, [this, corpus, serving] {
    std::vector<Generation> left;
    {
      const std::lock_guard lock(mutex_);
      const auto found = corpora_.find(corpus);
      if (found == corpora_.end()) return;
      Corpus& of = found->second;
      if (of.generations.size() < 2 || of.generations[1].number != serving) return;
      of.generations.erase(of.generations.begin());
      of.trained.erase(of.trained.begin());
      left = of.generations;
    }
    log::info("a new index is searched", {{"corpus", corpus}, {"kind", kind(corpus)}});
    if (const absl::Status status = write(corpus, left); !status.ok()) {
      log::error("file not written", {{"reason", std::string(status.message())}});
    }
    train(corpus);  // it may have grown meanwhile
  });
}

void Generations::train(CorpusNumber corpus) {
  TrainedInfo trained;
  {
    const std::lock_guard lock(mutex_);
    const auto found = corpora_.find(corpus);
    if (found == corpora_.end() || found->second.generations.size() > 1) return;
    trained = found->second.trained[0];
  }
  const std::optional<CorpusRecord> record = store_.find_corpus(corpus);
  if (!record.has_value()) return;
  const TrainingPlan plan =
      plan_training(options_, record->pieces, trained.lists > 0 ? &trained : nullptr);
  if (plan.lists == 0) return;
  const TimePoint started = steady_now();
  log::info("training the index", {{"corpus", corpus},
                                   {"vectors", plan.vectors},
                                   {"sample", plan.sample_size},
                                   {"lists", plan.lists}});
  absl::StatusOr<std::vector<float>> sample = read_sample(corpus, plan.sample_size);
  if (!sample.ok()) {
    log::error("index not trained", {{"reason", std::string(sample.status().message())}});
    return;
  }
  if (sample->size() < plan.sample_min * options_.dimension) return;  // erased meanwhile
  TimePoint last_report = started;
  const auto progress = [&](uint64_t done, uint64_t total) {
    if (to_seconds(steady_now() - last_report) < kProgressSeconds) return;
    last_report = steady_now();
    log::info("training the index", {{"corpus", corpus}, {"done", done}, {"total", total}});
  };
  absl::StatusOr<std::string> bytes =
      train_index(options_, plan, *sample, progress, stop_.get_token());
  if (!bytes.ok()) {
    log::warn("index not trained", {{"reason", std::string(bytes.status().message())}});
    return;
  }
  log::info("index trained", {{"corpus", corpus}, {"seconds", to_seconds(steady_now() - started)}});
  add(corpus, *std::move(bytes));
}

void Generations::add(CorpusNumber corpus, std::string trained) {
  const Generation next = next_generation(std::move(trained));
  std::vector<Generation> generations;
  {
    const std::lock_guard lock(mutex_);
    const auto found = corpora_.find(corpus);
    if (found == corpora_.end()) return;
    generations = found->second.generations;
  }
  generations.push_back(next);
  if (const absl::Status status = write(corpus, generations); !status.ok()) {
    log::error("file not written, the index stays as it is",
               {{"reason", std::string(status.message())}});
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto found = corpora_.find(corpus);
    if (found == corpora_.end()) return;
    found->second.generations.push_back(next);
    found->second.trained.push_back(info_of(*next.spec));
  }
  added_(AddGeneration{corpus, next});
}

// Spread evenly over the corpus by id, so that equal corpora are trained alike wherever they are.
absl::StatusOr<std::vector<float>> Generations::read_sample(CorpusNumber corpus, uint64_t size) {
  RAG_ASSIGN_OR_RETURN(const std::vector<VectorId> ids, store_.current_vectors(corpus));
  std::vector<VectorId> chosen;
  for (uint64_t i = 0; i < size && !ids.empty(); ++i) chosen.push_back(ids[i * ids.size() / size]);
  std::vector<float> sample;
  sample.reserve(chosen.size() * options_.dimension);
  for (size_t begin = 0; begin < chosen.size(); begin += kSampleBatch) {
    const auto batch =
        std::span(chosen).subspan(begin, std::min(kSampleBatch, chosen.size() - begin));
    RAG_RETURN_IF_ERROR(store_.read_embeddings(batch, [&](VectorId, std::span<const float> vector) {
      sample.insert(sample.end(), vector.begin(), vector.end());
    }));
  }
  return sample;
}

}  // namespace ragcache::retrieval
