#include <grpcpp/grpcpp.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <list>
#include <utility>
#include <variant>

#include "common/http/message.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/load/transport.h"
#include "ragcache/gateway/v1/gateway.grpc.pb.h"

namespace ragcache::loadgen {
namespace {

namespace asio = boost::asio;
namespace pb = controller::v1;
using gateway::v1::ChatRequest;
using gateway::v1::CompleteRequest;
using gateway::v1::RagService;

constexpr std::string_view kScheme = "grpc://";

using Message = std::variant<ChatRequest, CompleteRequest>;

void set_tokens(const std::vector<TokenId>& ids, pb::RawPrompt::Part& part) {
  part.mutable_tokens()->mutable_ids()->Add(ids.begin(), ids.end());
}

ChatRequest message_of(const ChatPrompt& prompt) {
  ChatRequest message;
  pb::Message& question = *message.add_messages();
  question.set_role(pb::ROLE_USER);
  question.set_content(prompt.text);
  if (!prompt.retrieval) {
    message.mutable_rag()->set_enabled(false);
  } else if (prompt.retrieval->documents.empty()) {
    message.mutable_rag()->set_top_k(prompt.retrieval->top_k);
  } else {
    message.mutable_rag()->mutable_documents()->Add(prompt.retrieval->documents.begin(),
                                                    prompt.retrieval->documents.end());
  }
  return message;
}

CompleteRequest message_of(const TokenPrompt& prompt) {
  CompleteRequest message;
  for (const std::vector<TokenId>& segment : prompt.segments) {
    set_tokens(segment, *message.mutable_prompt()->add_segments());
  }
  set_tokens(prompt.tail, *message.mutable_prompt()->mutable_tail());
  return message;
}

Message message_of(const Request& request, const std::string& model) {
  return std::visit(
      [&](const auto& prompt) -> Message {
        auto message = message_of(prompt);
        message.set_model(model);
        message.mutable_generation()->set_max_tokens(request.max_tokens);
        message.mutable_generation()->set_temperature(0);
        message.mutable_generation()->set_ignore_eos(request.ignore_eos);
        return message;
      },
      request.prompt);
}

// One call. gRPC's threads call its members one after the other, so that the outcome needs no lock;
// after the last of them it goes back to the loop.
class Call final : public grpc::ClientReadReactor<pb::AnswerResponse> {
 public:
  Call(asio::io_context& loop, TimePoint start, Outcome& outcome, Duration timeout)
      : work_(asio::make_work_guard(loop)), start_(start), outcome_(outcome), timeout_(timeout) {
    context_.set_deadline(deadline_in(timeout));
  }

  void send(RagService::Stub& stub, const Message& message, const std::string& api_key,
            std::function<void()> done) {
    done_ = std::move(done);
    if (!api_key.empty()) context_.AddMetadata("authorization", "Bearer " + api_key);
    outcome_.sent = now();
    if (const auto* chat = std::get_if<ChatRequest>(&message)) {
      stub.async()->Chat(&context_, chat, this);
    } else {
      stub.async()->Complete(&context_, &std::get<CompleteRequest>(message), this);
    }
    StartRead(&response_);
    StartCall();
  }

  // On the loop.
  void abort(std::string error) {
    cut_ = std::move(error);
    context_.TryCancel();
  }
  const std::string& cut() const { return cut_; }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_retrieved()) {
      for (const types::v1::Document& document : response_.retrieved().documents()) {
        outcome_.documents.push_back(document.id());
      }
    } else if (response_.has_delta()) {
      outcome_.text += response_.delta().text();
      if (!response_.delta().text().empty()) token_came();
    } else if (response_.has_choice_ended()) {
      token_came();
    } else if (response_.has_completed()) {
      take(response_.completed());
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!status.ok() || !completed_) outcome_.end = now();
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      outcome_.error = timeout_error(timeout_);
    } else if (!status.ok()) {
      const absl::Status failure = from_grpc_status(status);
      outcome_.error =
          str_cat("status ", absl::StatusCodeToString(failure.code()), ": ", failure.message());
    } else if (!completed_) {
      outcome_.error = "closed: the stream ended before the answer was whole";
    }
    asio::post(work_.get_executor(), done_);
  }

 private:
  Duration now() const { return steady_now() - start_; }

  void token_came() {
    if (!outcome_.first_token) outcome_.first_token = now();
  }

  void take(const pb::Completed& totals) {
    token_came();
    completed_ = true;
    outcome_.end = now();
    outcome_.prompt_tokens = totals.prompt_tokens();
    outcome_.cached_tokens = totals.cached_tokens();
    outcome_.cached_documents = totals.cached_documents();
    outcome_.completion_tokens = totals.completion_tokens();
    outcome_.search_ms = static_cast<double>(totals.search_us()) / 1e3;
    outcome_.queue_ms = static_cast<double>(totals.queue_us()) / 1e3;
    outcome_.scheduling_us = static_cast<double>(totals.scheduling_ns()) / 1e3;
  }

  asio::executor_work_guard<asio::io_context::executor_type> work_;
  const TimePoint start_;
  Outcome& outcome_;
  const Duration timeout_;
  std::function<void()> done_;
  std::string cut_;  // of the loop
  grpc::ClientContext context_;
  pb::AnswerResponse response_;
  bool completed_ = false;
};

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(asio::io_context& loop, EndpointOptions endpoint, std::string address,
                Duration timeout)
      : loop_(loop),
        endpoint_(std::move(endpoint)),
        address_(std::move(address)),
        timeout_(timeout),
        channel_(make_channel(address_)),
        stub_(RagService::NewStub(channel_)) {}

  absl::Status prepare(const std::vector<Request>& requests) override {
    for (const Request& request : requests) {
      messages_.push_back(message_of(request, endpoint_.model));
    }
    if (!channel_->WaitForConnected(deadline_in(kConnectTimeout))) {
      return absl::UnavailableError(
          str_cat("cannot connect to ", address_, " within ", to_seconds(kConnectTimeout), " s"));
    }
    return absl::OkStatus();
  }

  void send(size_t index, TimePoint start, Outcome& outcome, std::function<void()> done) override {
    const auto call = calls_.emplace(calls_.end(), loop_, start, outcome, timeout_);
    call->send(*stub_, messages_[index], endpoint_.api_key,
               [this, call, &outcome, done = std::move(done)] {
                 if (!call->cut().empty() && !outcome.error.empty()) outcome.error = call->cut();
                 calls_.erase(call);
                 done();
               });
  }

  void abort(const std::string& error) override {
    for (Call& call : calls_) call.abort(error);
  }

 private:
  asio::io_context& loop_;
  const EndpointOptions endpoint_;
  const std::string address_;
  const Duration timeout_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<RagService::Stub> stub_;
  std::vector<Message> messages_;
  std::list<Call> calls_;  // each until its `done`
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> make_grpc_transport(asio::io_context& loop,
                                                               const EndpointOptions& endpoint,
                                                               Duration timeout) {
  const std::string address = endpoint.url.substr(kScheme.size());
  if (!http::parse_host_port(address).ok()) {
    return absl::InvalidArgumentError(
        str_cat("url ", endpoint.url, ": must be grpc://host:port with a port of 1 to 65535"));
  }
  if (!endpoint.extra.empty()) {
    return absl::InvalidArgumentError("extra members of a request: are for HTTP");
  }
  return std::make_unique<GrpcTransport>(loop, endpoint, address, timeout);
}

}  // namespace ragcache::loadgen
