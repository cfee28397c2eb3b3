#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/http/event.h"
#include "common/rpc/status.h"
#include "services/gateway/http/call.h"
#include "services/gateway/stubs.h"

// gRPC's callback API as coroutines of one HTTP exchange. gRPC's threads only copy and post to the
// exchange's strand, where all state lives. Until a call's last callback has run it keeps the
// server's threads alive, so that the server never stops under it. A call is cancelled when its
// exchange's client goes away.
namespace ragcache::gateway {

inline boost::asio::any_io_executor keep_running(const boost::asio::any_io_executor& executor) {
  return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
}

inline constexpr int64_t kNoTimeout = 0;

// The service's time is what is left of the client's, at most `timeout_ms`.
inline void prepare(grpc::ClientContext& context, const Call& call, int64_t timeout_ms) {
  TimePoint end = call.deadline;
  const TimePoint now = steady_now();
  if (timeout_ms != kNoTimeout) end = std::min(end, now + std::chrono::milliseconds(timeout_ms));
  if (end != TimePoint::max()) {
    context.set_deadline(gpr_time_from_nanos((end - now).count(), GPR_TIMESPAN));
  }
  context.AddMetadata("x-request-id", call.request().id);
  if (const std::string_view trace = trace_parent_of(call.request()); !trace.empty()) {
    context.AddMetadata("traceparent", std::string(trace));
  }
}

template <typename Async, typename Request, typename Response>
boost::asio::awaitable<absl::StatusOr<Response>> call_unary(
    Call& call, int64_t timeout_ms, std::type_identity_t<Async>* stub,
    UnaryMethod<Async, Request, Response> method, Request request) {
  struct State {
    explicit State(const boost::asio::any_io_executor& executor) : done(executor) {}
    grpc::ClientContext context;
    Request request;
    Response response;
    grpc::Status status;
    http::Event done;
  };
  auto state = std::make_shared<State>(call.exchange.executor());
  state->request = std::move(request);
  prepare(state->context, call, timeout_ms);
  http::Exchange::DisconnectGuard guard(call.exchange, [&state] { state->context.TryCancel(); });
  // The closure may die on gRPC's thread: by then it must have given away what belongs to the
  // strand.
  std::function<void(grpc::Status)> done =
      [state, executor = keep_running(call.exchange.executor())](grpc::Status status) mutable {
        boost::asio::post(executor, [state = std::move(state), status = std::move(status)] {
          state->status = status;
          state->done.set();
        });
        executor = {};
      };
  (stub->*method)(&state->context, &state->request, &state->response, std::move(done));
  co_await state->done.wait();
  if (!state->status.ok()) co_return from_grpc_status(state->status);
  co_return std::move(state->response);
}

// What both kinds of streams share. Owned by itself from start() to gRPC's last callback, and by
// the Stream below.
template <typename Base, typename Response>
class StreamReactor : public Base {
 public:
  // `changed_in` is set with every change; streams that are waited for together share it.
  StreamReactor(http::Exchange& exchange, std::shared_ptr<http::Event> changed_in)
      : changed(std::move(changed_in)), executor_(keep_running(exchange.executor())) {}

  // REQUIRES: the call is bound to this reactor.
  void start(std::shared_ptr<StreamReactor> self) {
    self_ = std::move(self);
    // Reads and writes start from the strand, outside of gRPC's reactions: that takes a hold.
    this->AddHold();
    this->StartRead(&incoming);
    this->StartCall();
  }

  // REQUIRES: has_response, or the call just began.
  void read_next() {
    RAG_CHECK(!reading);
    has_response = false;
    reading = true;
    this->StartRead(&incoming);
  }

  void cancel() { context.TryCancel(); }

  // Nobody reads the rest.
  void abandon() {
    abandoned = true;
    cancel();
    release_if_ended();
  }

  void OnReadDone(bool ok) override {
    post([ok](StreamReactor& self) {
      self.reading = false;
      self.has_response = ok;
      self.ended = !ok;
    });
  }

  void OnDone(const grpc::Status& status) override {
    auto self = std::move(self_);
    const auto executor = std::move(executor_);
    StreamReactor& reactor = *self;
    boost::asio::post(executor, [self = std::move(self), &reactor, status] {
      reactor.done = true;
      reactor.status = status;
      reactor.changed->set();
    });
  }

  // Of the strand. `incoming` belongs to gRPC while `reading`.
  grpc::ClientContext context;
  Response incoming;
  const std::shared_ptr<http::Event> changed;
  grpc::Status status;
  bool reading = true;
  bool has_response = false;
  bool writing = false;
  bool ended = false;  // the service sends no more
  bool abandoned = false;
  bool done = false;

 protected:
  // Runs `what` on the strand.
  template <typename What>
  void post(What what) {
    boost::asio::post(executor_, [self = self_, what] {
      what(*self);
      self->release_if_ended();
      self->changed->set();
    });
  }

  // Gives up the hold when no more reads or writes will start.
  void release_if_ended() {
    if (reading || writing || !(ended || abandoned)) return;
    if (!std::exchange(released_, true)) this->RemoveHold();
  }

 private:
  std::shared_ptr<StreamReactor> self_;
  boost::asio::any_io_executor executor_;
  bool released_ = false;
};

// A server-streaming call; lives on the exchange's strand. One response waits here at most: a
// client that does not take its answer holds the service back.
template <typename Request, typename Response>
class ReadStream {
 public:
  // `bind` is (context, request, reactor) -> void, the stub's method.
  template <typename Bind>
  ReadStream(Call& call, int64_t timeout_ms, std::shared_ptr<http::Event> changed, Request request,
             Bind bind)
      : request_(std::move(request)),
        reactor_(std::make_shared<Reactor>(call.exchange, std::move(changed))),
        guard_(call.exchange, [reactor = reactor_.get()] { reactor->cancel(); }) {
    prepare(reactor_->context, call, timeout_ms);
    bind(&reactor_->context, &request_, reactor_.get());
    reactor_->start(reactor_);
  }
  ~ReadStream() { reactor_->abandon(); }
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;

  // Takes the response that has come, if there is one.
  bool take(Response& response) {
    if (!reactor_->has_response) return false;
    response = std::move(reactor_->incoming);
    reactor_->read_next();
    return true;
  }

  // Whether the call has ended, with everything taken. Then status() tells why.
  bool done() const { return reactor_->done; }
  absl::Status status() const { return from_grpc_status(reactor_->status); }

 private:
  using Reactor = StreamReactor<grpc::ClientReadReactor<Response>, Response>;

  Request request_;
  std::shared_ptr<Reactor> reactor_;
  http::Exchange::DisconnectGuard guard_;
};

template <typename Request, typename Response>
class DuplexReactor : public StreamReactor<grpc::ClientBidiReactor<Request, Response>, Response> {
 public:
  using Base = StreamReactor<grpc::ClientBidiReactor<Request, Response>, Response>;
  using Base::Base;

  bool write(Request request) {
    RAG_CHECK(!this->writing);
    if (this->ended || this->done) return false;
    this->writing = true;
    outgoing_ = std::move(request);
    this->StartWrite(&outgoing_);
    return true;
  }

  void end_writes() {
    RAG_CHECK(!this->writing);
    if (this->ended || this->done) return;
    this->writing = true;
    this->StartWritesDone();
  }

  void OnWriteDone(bool) override {
    this->post([](Base& self) { self.writing = false; });
  }
  void OnWritesDoneDone(bool) override {
    this->post([](Base& self) { self.writing = false; });
  }

 private:
  Request outgoing_;
};

// A call with streams both ways whose responses are cumulative: only the latest is kept.
template <typename Request, typename Response>
class DuplexStream {
 public:
  // `bind` is (context, reactor) -> void, the stub's method.
  template <typename Bind>
  DuplexStream(Call& call, int64_t timeout_ms, Bind bind)
      : reactor_(std::make_shared<Reactor>(
            call.exchange, std::make_shared<http::Event>(call.exchange.executor()))),
        guard_(call.exchange, [reactor = reactor_.get()] { reactor->cancel(); }) {
    prepare(reactor_->context, call, timeout_ms);
    bind(&reactor_->context, reactor_.get());
    reactor_->start(reactor_);
  }
  ~DuplexStream() { reactor_->abandon(); }
  DuplexStream(const DuplexStream&) = delete;
  DuplexStream& operator=(const DuplexStream&) = delete;

  // False if the service takes no more: see status(). REQUIRES: !writing().
  bool write(Request request) { return reactor_->write(std::move(request)); }
  void end_writes() { reactor_->end_writes(); }
  bool writing() const { return reactor_->writing; }
  bool done() const { return reactor_->done; }

  // Until a write ended, a response came or the call ended.
  boost::asio::awaitable<void> changed() { return reactor_->changed->wait(); }

  // Takes the response that came since the last call.
  bool take(Response& latest) {
    if (!reactor_->has_response) return false;
    latest = std::move(reactor_->incoming);
    reactor_->read_next();
    return true;
  }

  absl::Status status() const { return from_grpc_status(reactor_->status); }

 private:
  using Reactor = DuplexReactor<Request, Response>;

  std::shared_ptr<Reactor> reactor_;
  http::Exchange::DisconnectGuard guard_;
};

}  // namespace ragcache::gateway
