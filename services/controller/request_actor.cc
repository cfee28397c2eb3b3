#include "services/controller/request_actor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::controller {
namespace {

// An embedder reads a few hundred tokens; of a longer question only the beginning is searched for.
constexpr size_t kMaxQueryBytes = 8 << 10;

constexpr Duration kSearchTimeout = std::chrono::seconds(30);
// A retrieval service that is restarted is waited for.
constexpr Duration kRetryFor = std::chrono::seconds(10);
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);

std::vector<ChatMessage> turns_of(const v1::AnswerRequest& request) {
  std::vector<ChatMessage> turns;
  for (const v1::Message& message : request.messages()) {
    if (message.role() == v1::ROLE_SYSTEM) continue;
    turns.push_back({message.role() == v1::ROLE_USER ? ChatRole::kUser : ChatRole::kAssistant,
                     message.content()});
  }
  return turns;
}

// The question's beginning, cut between characters.
std::string query_of(const std::string& question) {
  size_t end = std::min(question.size(), kMaxQueryBytes);
  while (end < question.size() && (static_cast<uint8_t>(question[end]) & 0xC0) == 0x80) --end;
  return question.substr(0, end);
}

std::string system_of(const v1::AnswerRequest& request, const Config& config) {
  const v1::Message& first = request.messages(0);
  return first.role() == v1::ROLE_SYSTEM ? first.content() : config.system_prompt;
}

RawPart part_of(const v1::RawPrompt::Part& part) {
  if (!part.has_tokens()) return part.text();
  return std::vector<TokenId>(part.tokens().ids().begin(), part.tokens().ids().end());
}

absl::StatusOr<std::vector<PromptDocument>> prompt_documents(
    std::span<const types::v1::Document> documents) {
  std::vector<PromptDocument> result;
  for (const types::v1::Document& document : documents) {
    PromptDocument item{.id = document.id()};
    item.tokens.assign(document.segment_tokens().begin(), document.segment_tokens().end());
    if (document.token_digest().size() != item.token_digest.size()) {
      return absl::InternalError("retrieval sent a document without its token digest");
    }
    std::copy(document.token_digest().begin(), document.token_digest().end(),
              item.token_digest.begin());
    result.push_back(std::move(item));
  }
  return result;
}

}  // namespace

RequestActor::RequestActor(std::shared_ptr<const Dependencies> dependencies,
                           v1::AnswerRequest request, AnswerSink sink, ActorRef<RequestActor> self)
    : dependencies_(std::move(dependencies)),
      request_(std::move(request)),
      sink_(std::move(sink)),
      self_(self) {}

// ---- documents

void RequestActor::handle(Start start, ActorContext& context) {
  arrived_ = context.now();
  searched_ = arrived_;
  deadline_ = start.deadline;
  const SegmentId root = chain_root(types::v1::CACHE_SCOPE_TENANT);
  if (request_.has_raw_prompt()) {
    const v1::RawPrompt& prompt = request_.raw_prompt();
    std::vector<RawPart> segments;
    for (const auto& segment : prompt.segments()) segments.push_back(part_of(segment));
    return submit(
        make_raw_plan(*dependencies_->tokenizer, root, std::move(segments), part_of(prompt.tail())),
        context);
  }
  if (!request_.retrieval().enabled()) return submit(make_plan(root, {}), context);
  pause_ = kFirstPause;
  search();
}

void RequestActor::search() {
  const v1::Retrieval& retrieval = request_.retrieval();
  state_ = State::kSearching;
  dependencies_->retrieval.send(
      FindDocuments{request_.request_id(),
                    query_of(request_.messages(request_.messages_size() - 1).content()),
                    {retrieval.document_ids().begin(), retrieval.document_ids().end()},
                    retrieval.top_k(),
                    retrieval.corpus(),
                    retrieval.filter(),
                    std::min(deadline_, arrived_ + kSearchTimeout),
                    self_});
}

void RequestActor::handle(SearchAgain, ActorContext&) {
  if (state_ == State::kPausing) search();
}

void RequestActor::handle(DocumentsFound found, ActorContext& context) {
  if (state_ != State::kSearching) return;
  if (absl::IsUnavailable(found.status) &&
      context.now() + pause_ < std::min(deadline_, arrived_ + kRetryFor)) {
    state_ = State::kPausing;
    self_.send_after(pause_, SearchAgain{});
    pause_ = std::min(2 * pause_, kLongestPause);
    return;
  }
  searched_ = context.now();
  dependencies_->metrics->search_seconds.Observe(to_seconds(searched_ - arrived_));
  usage_.set_search_us(to_us(searched_ - arrived_));
  if (!found.status.ok()) return fail(std::move(found.status), context);

  v1::AnswerResponse response;
  v1::Retrieved& retrieved = *response.mutable_retrieved();
  retrieved.set_search_us(usage_.search_us());
  for (const types::v1::Document& document : found.documents) {
    types::v1::Document& shown = *retrieved.add_documents();
    shown.set_id(document.id());
    shown.set_title(document.title());
    shown.set_score(document.score());
    shown.set_source_id(document.source_id());
    shown.set_content_digest(document.content_digest());
    *shown.mutable_metadata() = document.metadata();
  }
  sink_.send(std::move(response));
  submit(make_plan(chain_root(found.cache_scope), found.documents), context);
}

// ---- the prompt

SegmentId RequestActor::chain_root(types::v1::CacheScope scope) const {
  if (scope == types::v1::CACHE_SCOPE_SHARED) {
    return SegmentId::root(dependencies_->model, "shared");
  }
  const std::string& tenant = request_.tenant();
  return SegmentId::root(dependencies_->model,
                         absl::StrCat("tenant/", tenant.empty() ? "default" : tenant));
}

RequestActor::Plan RequestActor::make_plan(const SegmentId& root,
                                           std::span<const types::v1::Document> documents) const {
  RAG_ASSIGN_OR_RETURN(std::vector<PromptDocument> prepared, prompt_documents(documents));
  const Config& config = dependencies_->config;
  const size_t cached =
      config.cached_prefix_docs == 0 ? prepared.size() : config.cached_prefix_docs;
  return make_prompt_plan(*dependencies_->format, root, system_of(request_, config),
                          std::move(prepared), cached, turns_of(request_));
}

void RequestActor::submit(Plan plan, ActorContext& context) {
  if (!plan.ok()) return fail(plan.status(), context);
  if (!dependencies_->config.prefix_cache) plan = without_segments(**plan);
  usage_.set_prompt_tokens((*plan)->prompt_tokens());
  if (request_.path_action() == v1::PATH_ACTION_RELEASE) {
    state_ = State::kReleasing;
    dependencies_->group.send(ReleasePath{*std::move(plan), self_});
    return;
  }
  state_ = State::kAnswering;

  std::vector<TokenId> stop(request_.stop_token_ids().begin(), request_.stop_token_ids().end());
  if (!request_.ignore_eos()) {
    const auto own = dependencies_->format->stop_tokens();
    stop.insert(stop.end(), own.begin(), own.end());
  }
  const uint32_t n = std::max(request_.n(), 1u);
  choices_.reserve(n);
  const bool drop_space = !request_.has_raw_prompt() && dependencies_->format->answer_has_space();
  for (uint32_t choice = 0; choice < n; ++choice) {
    choices_.emplace_back(choice, dependencies_->tokenizer,
                          std::vector<std::string>(request_.stop().begin(), request_.stop().end()),
                          drop_space);
    types::v1::Sampling sampling = request_.sampling();
    sampling.set_seed(sampling.seed() + choice);
    dependencies_->group.send(Submit{.request_id = id_of(choice),
                                     .choice = choice,
                                     .plan = *plan,
                                     .sampling = std::move(sampling),
                                     .max_tokens = request_.max_tokens(),
                                     .stop_tokens = stop,
                                     .logprobs = request_.logprobs(),
                                     .top_logprobs = request_.top_logprobs(),
                                     .keep = request_.path_action() == v1::PATH_ACTION_KEEP,
                                     .reply = self_});
  }
}

std::string RequestActor::id_of(uint32_t choice) const {
  return absl::StrCat(request_.request_id(), "#", choice);
}

// ---- the answer

void RequestActor::handle(TokensArrived arrived, ActorContext& context) {
  Choice& choice = choices_[arrived.choice];
  if (state_ != State::kAnswering || choice.state != Choice::State::kAnswering) return;
  if (!first_token_.has_value()) {
    first_token_ = context.now();
    usage_.set_ttft_us(to_us(*first_token_ - arrived_));
    dependencies_->metrics->ttft_seconds.Observe(to_seconds(*first_token_ - arrived_));
    if (arrived.admission.has_value()) {
      const Duration queued = arrived.admission->at - searched_;
      usage_.set_queue_us(to_us(queued));
      dependencies_->metrics->queue_seconds.Observe(to_seconds(queued));
    }
  }
  if (arrived.admission.has_value()) {
    usage_.set_scheduling_ns(usage_.scheduling_ns() +
                             static_cast<uint64_t>(arrived.admission->scheduling.count()));
    // Of the first choice: what the others find cached is mostly its own.
    if (arrived.choice == 0) {
      usage_.set_cached_tokens(arrived.admission->cached_tokens);
      usage_.set_cached_documents(arrived.admission->cached_documents);
    }
  }
  usage_.set_completion_tokens(usage_.completion_tokens() +
                               static_cast<uint32_t>(arrived.tokens.size()));
  tell(choice.append(arrived.tokens, arrived.logprobs));
  if (!choice.stopped()) return;
  withdraw(choice, arrived.choice);
  end_choice(arrived.choice, worker::v1::FINISH_REASON_STOP, context);
}

void RequestActor::handle(GroupEnded ended, ActorContext& context) {
  Choice& choice = choices_[ended.choice];
  const bool answering = choice.state == Choice::State::kAnswering;
  choice.state = Choice::State::kDone;
  if (state_ == State::kAnswering && answering) {
    if (!ended.status.ok()) return fail(std::move(ended.status), context);
    tell(choice.finish());
    end_choice(ended.choice, ended.reason, context);
  }
  stop_if_done(context);
}

void RequestActor::handle(PathReleased released, ActorContext& context) {
  if (state_ != State::kReleasing) return;
  if (!released.was_kept) {
    return fail(absl::NotFoundError("documents: no such path is pinned"), context);
  }
  complete(context);
  stop_if_done(context);
}

void RequestActor::handle(ClientGone, ActorContext& context) {
  if (state_ == State::kEnding) return;
  if (state_ == State::kSearching) {
    dependencies_->retrieval.send(CancelFind{request_.request_id()});
  }
  fail(absl::CancelledError("the client went away"), context);
}

void RequestActor::tell(std::optional<v1::Delta> delta) {
  if (!delta.has_value()) return;
  v1::AnswerResponse response;
  *response.mutable_delta() = *std::move(delta);
  sink_.send(std::move(response));
}

void RequestActor::end_choice(uint32_t choice, worker::v1::FinishReason reason,
                              ActorContext& context) {
  v1::AnswerResponse ended;
  ended.mutable_choice_ended()->set_choice(choice);
  ended.mutable_choice_ended()->set_reason(reason == worker::v1::FINISH_REASON_LENGTH
                                               ? v1::FINISH_REASON_LENGTH
                                               : v1::FINISH_REASON_STOP);
  if (choice == 0) usage_.set_reason(ended.choice_ended().reason());
  sink_.send(std::move(ended));
  if (++choices_ended_ == choices_.size()) complete(context);
}

void RequestActor::complete(ActorContext& context) {
  state_ = State::kEnding;
  usage_.set_total_us(to_us(context.now() - arrived_));
  v1::AnswerResponse completed;
  *completed.mutable_completed() = usage_;
  sink_.send(std::move(completed));
  sink_.send(AnswerEnded{absl::OkStatus()});
}

void RequestActor::fail(absl::Status status, ActorContext& context) {
  state_ = State::kEnding;
  sink_.send(AnswerEnded{std::move(status)});
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    if (choices_[i].state == Choice::State::kAnswering) withdraw(choices_[i], i);
  }
  stop_if_done(context);
}

void RequestActor::withdraw(Choice& choice, uint32_t index) {
  choice.state = Choice::State::kStopping;
  dependencies_->group.send(Withdraw{id_of(index)});
}

void RequestActor::stop_if_done(ActorContext& context) {
  const bool done = std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.state == Choice::State::kDone;
  });
  if (state_ == State::kEnding && done) context.stop();
}

}  // namespace ragcache::controller
