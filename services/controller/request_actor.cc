#include "services/controller/request_actor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ragcache::controller {
namespace {

constexpr int kMaxMessages = 1024;
constexpr size_t kMaxContentBytes = 4 << 20;
constexpr uint32_t kMaxTopK = 100;
constexpr int kMaxNamedDocuments = 100;
constexpr int kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 256;
// An embedder reads a few hundred tokens; of a longer question only the beginning is searched for.
constexpr size_t kMaxQueryBytes = 8 << 10;

absl::Status invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

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

}  // namespace

absl::Status validate(const v1::AnswerRequest& request) {
  if (request.request_id().empty()) return invalid("request_id: must not be empty");
  if (request.messages().empty()) return invalid("messages: must not be empty");
  if (request.messages_size() > kMaxMessages) {
    return invalid(
        absl::StrCat("messages: has ", request.messages_size(), " items, at most ", kMaxMessages));
  }
  for (int i = 0; i < request.messages_size(); ++i) {
    const v1::Message& message = request.messages(i);
    if (message.role() == v1::ROLE_UNSPECIFIED || !v1::Role_IsValid(message.role())) {
      return invalid(absl::StrCat("messages[", i, "].role: must be system, user or assistant"));
    }
    if (message.role() == v1::ROLE_SYSTEM && i > 0) {
      return invalid(absl::StrCat("messages[", i, "].role: only the first may be system"));
    }
    if (message.content().size() > kMaxContentBytes) {
      return invalid(absl::StrCat("messages[", i, "].content: is ", message.content().size(),
                                  " bytes, at most ", kMaxContentBytes));
    }
  }
  const v1::Message& last = request.messages(request.messages_size() - 1);
  if (last.role() != v1::ROLE_USER || last.content().empty()) {
    return invalid("messages: the last one must be the user's and not empty");
  }
  const v1::Retrieval& retrieval = request.retrieval();
  if (retrieval.enabled() && retrieval.document_ids().empty() &&
      (retrieval.top_k() < 1 || retrieval.top_k() > kMaxTopK)) {
    return invalid(
        absl::StrCat("rag.top_k: is ", retrieval.top_k(), ", must be from 1 to ", kMaxTopK));
  }
  if (retrieval.document_ids_size() > kMaxNamedDocuments) {
    return invalid(absl::StrCat("rag.documents: has ", retrieval.document_ids_size(),
                                " items, at most ", kMaxNamedDocuments));
  }
  const types::v1::Sampling& sampling = request.sampling();
  if (!(sampling.temperature() >= 0 && sampling.temperature() <= 2)) {
    return invalid(
        absl::StrCat("temperature: is ", sampling.temperature(), ", must be from 0 to 2"));
  }
  if (!(sampling.top_p() > 0 && sampling.top_p() <= 1)) {
    return invalid(absl::StrCat("top_p: is ", sampling.top_p(), ", must be over 0 and at most 1"));
  }
  if (request.stop_size() > kMaxStopStrings) {
    return invalid(
        absl::StrCat("stop: has ", request.stop_size(), " strings, at most ", kMaxStopStrings));
  }
  for (const std::string& stop : request.stop()) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return invalid(absl::StrCat("stop: a string is ", stop.size(), " bytes, must be from 1 to ",
                                  kMaxStopBytes));
    }
  }
  return absl::OkStatus();
}

RequestActor::RequestActor(std::shared_ptr<const Dependencies> dependencies,
                           v1::AnswerRequest request, AnswerSink sink, ActorRef<RequestActor> self)
    : dependencies_(std::move(dependencies)),
      request_(std::move(request)),
      sink_(std::move(sink)),
      self_(self),
      text_(dependencies_->tokenizer, {request_.stop().begin(), request_.stop().end()}) {}

void RequestActor::handle(Start, ActorContext& context) {
  arrived_ = context.now();
  searched_ = arrived_;
  if (client_gone_) return fail(absl::CancelledError("the client went away"), context);
  const v1::Retrieval& retrieval = request_.retrieval();
  if (!retrieval.enabled()) return submit({}, context);
  state_ = State::kSearching;
  dependencies_->retrieval.send(
      FindDocuments{request_.request_id(),
                    query_of(request_.messages(request_.messages_size() - 1).content()),
                    {retrieval.document_ids().begin(), retrieval.document_ids().end()},
                    retrieval.top_k(),
                    self_});
}

void RequestActor::handle(DocumentsFound found, ActorContext& context) {
  if (state_ != State::kSearching) return;
  searched_ = context.now();
  dependencies_->metrics->search_seconds.Observe(to_seconds(searched_ - arrived_));
  usage_.set_search_us(to_us(searched_ - arrived_));
  if (client_gone_) return fail(absl::CancelledError("the client went away"), context);
  if (!found.status.ok()) return fail(std::move(found.status), context);

  v1::AnswerResponse response;
  v1::Retrieved& retrieved = *response.mutable_retrieved();
  retrieved.set_search_us(usage_.search_us());
  for (const types::v1::Document& document : found.documents) {
    types::v1::Document& shown = *retrieved.add_documents();
    shown.set_id(document.id());
    shown.set_title(document.title());
    shown.set_score(document.score());
  }
  sink_.send(std::move(response));
  submit(std::move(found.documents), context);
}

void RequestActor::submit(std::vector<types::v1::Document> documents, ActorContext& context) {
  std::vector<PromptDocument> prompt_documents;
  for (types::v1::Document& document : documents) {
    PromptDocument item;
    item.tokens.assign(document.segment_tokens().begin(), document.segment_tokens().end());
    if (document.token_digest().size() != item.token_digest.size()) {
      return fail(absl::InternalError("retrieval sent a document without its token digest"),
                  context);
    }
    std::copy(document.token_digest().begin(), document.token_digest().end(),
              item.token_digest.begin());
    prompt_documents.push_back(std::move(item));
  }
  auto plan = make_prompt_plan(*dependencies_->format, dependencies_->chain_root,
                               system_of(request_, dependencies_->config),
                               std::move(prompt_documents), turns_of(request_));
  if (!plan.ok()) return fail(plan.status(), context);

  usage_.set_prompt_tokens((*plan)->prompt_tokens());
  const auto stop = dependencies_->format->stop_tokens();
  state_ = State::kSubmitted;
  dependencies_->group.send(Submit{request_.request_id(),
                                   *std::move(plan),
                                   request_.sampling(),
                                   request_.max_tokens(),
                                   {stop.begin(), stop.end()},
                                   self_});
}

void RequestActor::handle(TokensArrived arrived, ActorContext& context) {
  if (state_ != State::kSubmitted) return;
  if (!first_token_.has_value()) {
    first_token_ = context.now();
    usage_.set_ttft_us(to_us(*first_token_ - arrived_));
    usage_.set_queue_us(to_us(arrived.admitted - searched_));
    dependencies_->metrics->ttft_seconds.Observe(to_seconds(*first_token_ - arrived_));
    dependencies_->metrics->queue_seconds.Observe(to_seconds(arrived.admitted - searched_));
  }
  if (arrived.cached_tokens.has_value()) usage_.set_cached_tokens(*arrived.cached_tokens);
  usage_.set_completion_tokens(usage_.completion_tokens() +
                               static_cast<uint32_t>(arrived.tokens.size()));
  send_delta(text_.append(arrived.tokens));
  if (!text_.stopped()) return;
  // The answer is complete for the client; the worker still has to let go.
  complete(worker::v1::FINISH_REASON_STOP, context);
  state_ = State::kStopping;
  dependencies_->group.send(Withdraw{request_.request_id()});
}

void RequestActor::handle(GroupEnded ended, ActorContext& context) {
  switch (state_) {
    case State::kSubmitted:
      if (!ended.status.ok()) return fail(std::move(ended.status), context);
      send_delta(text_.finish());
      complete(ended.reason, context);
      state_ = State::kDone;
      context.stop();
      return;
    case State::kStopping:
      state_ = State::kDone;
      context.stop();
      return;
    default:
      return;
  }
}

void RequestActor::handle(ClientGone, ActorContext&) {
  client_gone_ = true;
  if (state_ == State::kSearching) {
    dependencies_->retrieval.send(CancelFind{request_.request_id()});
  } else if (state_ == State::kSubmitted) {
    dependencies_->group.send(Withdraw{request_.request_id()});
  }
}

void RequestActor::send_delta(std::string text) {
  if (text.empty()) return;
  v1::AnswerResponse response;
  response.mutable_delta()->set_text(std::move(text));
  sink_.send(std::move(response));
}

void RequestActor::complete(worker::v1::FinishReason reason, ActorContext& context) {
  usage_.set_reason(reason == worker::v1::FINISH_REASON_LENGTH ? v1::FINISH_REASON_LENGTH
                                                               : v1::FINISH_REASON_STOP);
  usage_.set_total_us(to_us(context.now() - arrived_));
  v1::AnswerResponse response;
  *response.mutable_completed() = usage_;
  sink_.send(std::move(response));
  sink_.send(AnswerEnded{absl::OkStatus()});
}

void RequestActor::fail(absl::Status status, ActorContext& context) {
  state_ = State::kDone;
  sink_.send(AnswerEnded{std::move(status)});
  context.stop();
}

}  // namespace ragcache::controller
