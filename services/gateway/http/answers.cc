#include "services/gateway/http/answers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/http/sse.h"
#include "common/log/log.h"
#include "common/strings.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/openai_error.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;

class Answering {
 public:
  Answering(Call& call, std::vector<pb::AnswerRequest> requests, StreamOptions options,
            const AnswerFormat& format)
      : call_(call),
        options_(options),
        format_(format),
        choices_per_request_(requests.front().n()),
        searched_(requests.front().has_retrieval()),
        choices_(requests.size() * choices_per_request_),
        open_choices_(requests.size(), choices_per_request_),
        open_requests_(requests.size()),
        times_(call.services.metrics, call.exchange.arrival(), options.stream),
        streams_(call, std::move(requests)) {}

  awaitable<absl::Status> run() {
    absl::Status status;
    while (status.ok() && !has_text_ && open_requests_ > 0) status = co_await next();
    if (!status.ok()) co_return status;
    if (options_.stream) {
      co_await send_stream();
    } else {
      while (status.ok() && open_requests_ > 0) status = co_await next();
      if (!status.ok()) co_return status;
      co_await send_whole();
    }
    times_.ended();
    co_return absl::OkStatus();
  }

 private:
  // Takes one response in: events of a stream gather in events_.
  awaitable<absl::Status> next() {
    size_t request = 0;
    const bool more = co_await streams_.next(request, response_);
    if (!more) {
      co_return streams_.status().ok()
          ? absl::InternalError("the controller ended an answer without completing it")
          : streams_.status();
    }
    co_return take(request);
  }

  absl::Status take(size_t request) {
    if (response_.has_retrieved()) {
      retrieved_ = std::move(*response_.mutable_retrieved());
    } else if (response_.has_delta()) {
      return take_delta(request);
    } else if (response_.has_choice_ended()) {
      return end_choice(request, response_.choice_ended());
    } else if (response_.has_completed()) {
      complete(request, response_.completed());
    }
    return absl::OkStatus();
  }

  absl::Status take_delta(size_t request) {
    const pb::Delta& delta = response_.delta();
    if (delta.choice() >= choices_per_request_) return unknown_choice(delta.choice());
    if (delta.text().empty() && delta.logprobs().empty()) return absl::OkStatus();
    has_text_ = true;
    times_.got_text();
    const uint32_t index = index_of(request, delta.choice());
    Choice& choice = choices_[index];
    if (options_.stream) {
      add_chunk(format_.piece(index, delta.text(), delta.logprobs(), choice));
    } else {
      choice.text += delta.text();
      choice.logprobs.MergeFrom(delta.logprobs());
    }
    return absl::OkStatus();
  }

  absl::Status end_choice(size_t request, const pb::ChoiceEnded& ended) {
    if (ended.choice() >= choices_per_request_) return unknown_choice(ended.choice());
    const uint32_t index = index_of(request, ended.choice());
    choices_[index].reason = ended.reason();
    // The last one ends with the request, so that its chunk can carry the timings.
    if (open_choices_[request] > 1) end(request, index);
    return absl::OkStatus();
  }

  void complete(size_t request, const pb::Completed& completed) {
    --open_requests_;
    totals_.set_prompt_tokens(totals_.prompt_tokens() + completed.prompt_tokens());
    totals_.set_cached_tokens(totals_.cached_tokens() + completed.cached_tokens());
    totals_.set_cached_documents(totals_.cached_documents() + completed.cached_documents());
    totals_.set_scheduling_ns(totals_.scheduling_ns() + completed.scheduling_ns());
    totals_.set_completion_tokens(totals_.completion_tokens() + completed.completion_tokens());
    totals_.set_search_us(std::max(totals_.search_us(), completed.search_us()));
    totals_.set_queue_us(std::max(totals_.queue_us(), completed.queue_us()));
    totals_.set_ttft_us(std::max(totals_.ttft_us(), completed.ttft_us()));
    totals_.set_total_us(std::max(totals_.total_us(), completed.total_us()));
    if (open_requests_ == 0) times_.got_all(totals_.completion_tokens(), choices_.size());
    for (uint32_t i = 0; i < choices_per_request_; ++i) {
      const uint32_t index = index_of(request, i);
      Choice& choice = choices_[index];
      if (choice.ended) continue;
      if (choice.reason == pb::FINISH_REASON_UNSPECIFIED) choice.reason = completed.reason();
      end(request, index);
    }
  }

  void end(size_t request, uint32_t index) {
    Choice& choice = choices_[index];
    if (std::exchange(choice.ended, true)) return;
    --open_choices_[request];
    if (!options_.stream) return;
    OutJson chunk = format_.chunk(format_.ending(index, choice.reason));
    const bool last = open_requests_ == 0 && open_choices_[request] == 0;
    if (last && !options_.include_usage) chunk["timings"] = timings_json(totals_);
    add_event(chunk);
  }

  awaitable<void> send_whole() {
    OutJson choices = OutJson::array();
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      choices.push_back(format_.choice(i, choices_[i]));
    }
    OutJson value = format_.whole(std::move(choices), totals_);
    if (searched_) value["documents"] = documents_json(retrieved_);
    value["timings"] = timings_json(totals_);
    co_await respond_json(call_, std::move(value));
  }

  awaitable<void> send_stream() {
    http::Exchange& exchange = call_.exchange;
    http::Response head;
    head.content_type = http::kSseContentType;
    head.headers.add("Cache-Control", "no-cache");
    absl::Status sent = co_await exchange.start_stream(std::move(head));
    events_ = openings() + std::exchange(events_, "");
    absl::Status answered;
    while (sent.ok() && answered.ok() && open_requests_ > 0) {
      sent = co_await exchange.write(std::exchange(events_, ""));
      if (sent.ok()) answered = co_await next();
    }
    if (!sent.ok() || exchange.disconnected()) co_return;
    if (answered.ok()) {
      if (options_.include_usage) add_event(format_.usage_chunk(totals_));
      events_ += http::sse_event("[DONE]");
    } else {
      log::warn("an answer failed in its stream",
                {{"request_id", call_.request().id}, {"status", answered.ToString()}});
      OutJson error;
      error["error"] = error_json(answered);
      add_event(error);
    }
    sent = co_await exchange.write(std::exchange(events_, ""));
    if (sent.ok()) co_await exchange.finish_stream();
  }

  // Documents stand beside the first choice.
  std::string openings() const {
    std::string events;
    for (uint32_t i = 0; i < choices_.size(); ++i) {
      OutJson opening = format_.opening(i);
      if (opening.is_null()) continue;
      OutJson chunk = format_.chunk(std::move(opening));
      if (i == 0 && searched_) chunk["documents"] = documents_json(retrieved_);
      events += http::sse_event(dump_json(chunk));
    }
    return events;
  }

  uint32_t index_of(size_t request, uint32_t choice) const {
    return static_cast<uint32_t>(request) * choices_per_request_ + choice;
  }
  static absl::Status unknown_choice(uint32_t choice) {
    return absl::InternalError(str_cat("the controller told of a choice ", choice));
  }
  void add_chunk(OutJson choice) { add_event(format_.chunk(std::move(choice))); }
  void add_event(const OutJson& value) { events_ += http::sse_event(dump_json(value)); }

  Call& call_;
  const StreamOptions options_;
  const AnswerFormat& format_;
  const uint32_t choices_per_request_;
  const bool searched_;
  std::vector<Choice> choices_;
  std::vector<uint32_t> open_choices_;  // by request
  size_t open_requests_;
  pb::AnswerResponse response_;  // the latest
  pb::Retrieved retrieved_;
  pb::Completed totals_;  // counts are sums, times those of the slowest request
  std::string events_;
  bool has_text_ = false;
  AnswerTimes times_;
  backend::AnswerStreams streams_;
};

}  // namespace

awaitable<absl::Status> answer(Call& call, std::vector<pb::AnswerRequest> requests,
                               StreamOptions options, const AnswerFormat& format) {
  Answering answering(call, std::move(requests), options, format);
  absl::Status status = co_await answering.run();
  co_return status;
}

}  // namespace ragcache::gateway
