#include "services/gateway/chat.h"

#include <string>
#include <utility>

#include "common/clock.h"
#include "common/http/sse.h"
#include "common/log/log.h"
#include "common/random.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/chat_request.h"
#include "services/gateway/chat_response.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/upstream.h"

namespace ragcache::gateway {
namespace {

namespace pb = controller::v1;
using boost::asio::awaitable;
using AnswerStream = ReadStream<pb::AnswerRequest, pb::AnswerResponse>;

absl::Status cut_short() {
  return absl::InternalError("the controller ended an answer without completing it");
}

// One chat request on its way from the controller to the client.
class Chat {
 public:
  Chat(Services& services, http::Exchange& exchange, ChatRequest request, ModelInfo model)
      : services_(services),
        exchange_(exchange),
        stream_(request.stream),
        include_usage_(request.include_usage),
        shapes_(str_cat("chatcmpl-", exchange.request().id), std::move(model.name), unix_seconds(),
                include_usage_),
        answer_(exchange, services.config.answer_timeout_ms, std::move(request.answer),
                [&services](auto* context, auto* wanted, auto* reactor) {
                  services.controller->async()->Answer(context, wanted, reactor);
                }) {}

  awaitable<void> run() {
    // What comes before the first text is held back: until then an error has its own HTTP status.
    bool more = co_await next();
    while (more && !has_text_ && !response_.has_completed()) more = co_await next();
    if (!more) {
      absl::Status status = answer_.status().ok() ? cut_short() : answer_.status();
      if (!exchange_.disconnected()) co_await respond_error(exchange_, std::move(status));
      co_return;
    }
    if (stream_) {
      co_await send_stream();
    } else {
      co_await send_whole();
    }
    services_.metrics.request_latency(stream_).Observe(
        to_seconds(steady_now() - exchange_.arrival()));
  }

 private:
  awaitable<bool> next() {
    const bool more = co_await answer_.next(response_);
    if (!more) co_return false;
    if (response_.has_retrieved()) retrieved_ = std::move(*response_.mutable_retrieved());
    if (response_.has_delta() && !response_.delta().text().empty() &&
        !std::exchange(has_text_, true)) {
      services_.metrics.time_to_first_token(stream_).Observe(
          to_seconds(steady_now() - exchange_.arrival()));
    }
    co_return true;
  }

  awaitable<void> send_whole() {
    std::string text;
    bool more = true;
    while (more && !response_.has_completed()) {
      text += response_.delta().text();
      more = co_await next();
    }
    if (exchange_.disconnected()) co_return;
    if (more) {
      OutJson value = shapes_.whole(text, retrieved_, response_.completed());
      co_await respond_json(exchange_, std::move(value));
    } else {
      absl::Status status = answer_.status().ok() ? cut_short() : answer_.status();
      co_await respond_error(exchange_, std::move(status));
    }
  }

  awaitable<void> send_stream() {
    http::Response head;
    head.content_type = http::kSseContentType;
    head.headers.add("Cache-Control", "no-cache");
    absl::Status sent = co_await exchange_.start_stream(std::move(head));
    std::string events = http::sse_event(dump_json(shapes_.first_chunk(retrieved_)));
    bool more = true;
    while (sent.ok() && more && !response_.has_completed()) {
      if (!response_.delta().text().empty()) {
        events += http::sse_event(dump_json(shapes_.text_chunk(response_.delta().text())));
      }
      sent = co_await exchange_.write(std::move(events));
      events.clear();
      if (sent.ok()) more = co_await next();
    }
    if (!sent.ok() || exchange_.disconnected()) co_return;
    if (more) {
      events += http::sse_event(dump_json(shapes_.last_chunk(response_.completed())));
      if (include_usage_) {
        events += http::sse_event(dump_json(shapes_.usage_chunk(response_.completed())));
      }
      events += http::sse_event("[DONE]");
    } else {
      const absl::Status status = answer_.status().ok() ? cut_short() : answer_.status();
      log::warn("an answer failed in its stream",
                {{"request_id", exchange_.request().id}, {"status", status.ToString()}});
      events += http::sse_event(dump_json({{"error", error_json(status)}}));
    }
    sent = co_await exchange_.write(std::move(events));
    if (sent.ok()) co_await exchange_.finish_stream();
  }

  Services& services_;
  http::Exchange& exchange_;
  const bool stream_;
  const bool include_usage_;
  const ChatResponse shapes_;
  AnswerStream answer_;
  pb::AnswerResponse response_;  // the latest
  pb::Retrieved retrieved_;
  bool has_text_ = false;
};

absl::Status check_length(const ChatRequest& request, const ModelInfo& model) {
  if (request.answer.max_tokens() <= model.context_tokens) return absl::OkStatus();
  return invalid_field("max_tokens",
                       str_cat("must be 1 to ", model.context_tokens, ", the model's context, not ",
                               request.answer.max_tokens()));
}

}  // namespace

awaitable<void> handle_chat(Services& services, http::Exchange& exchange) {
  absl::StatusOr<std::string> body = co_await read_json_body(exchange);
  if (!body.ok()) {
    co_await respond_error(exchange, body.status());
    co_return;
  }
  const Config& config = services.config;
  absl::StatusOr<ChatRequest> request =
      parse_chat_request(*body, {.top_k = config.default_top_k, .max_top_k = config.max_top_k});
  if (!request.ok()) {
    co_await respond_error(exchange, request.status());
    co_return;
  }
  absl::StatusOr<ModelInfo> model = co_await services.find_model(exchange, request->model);
  absl::Status status = model.ok() ? check_length(*request, *model) : model.status();
  if (!status.ok()) {
    co_await respond_error(exchange, std::move(status));
    co_return;
  }
  request->answer.set_request_id(exchange.request().id);
  if (!request->has_seed) request->answer.mutable_sampling()->set_seed(random_bits());
  Chat chat(services, exchange, *std::move(request), *std::move(model));
  co_await chat.run();
}

}  // namespace ragcache::gateway
