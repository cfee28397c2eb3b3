#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/http/event.h"
#include "common/http/exchange.h"
#include "common/rpc/status.h"

// gRPC's callback API as coroutines of one HTTP exchange. gRPC's threads only copy and post to the
// exchange's strand, where all state lives. Until a call's last callback has run it keeps the
// server's threads alive, so that the server never stops under it. A call is cancelled when its
// exchange's client goes away.
namespace ragcache::gateway {

inline boost::asio::any_io_executor keep_running(const boost::asio::any_io_executor& executor) {
  return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
}

inline constexpr int64_t kNoTimeout = 0;

inline void prepare(grpc::ClientContext& context, const http::Exchange& exchange,
                    int64_t timeout_ms) {
  if (timeout_ms != kNoTimeout) {
    context.set_deadline(gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
  }
  context.AddMetadata("x-request-id", exchange.request().id);
}

// One unary call. `start` is (context, request, response, done) -> void.
template <typename Response, typename Request, typename Start>
boost::asio::awaitable<absl::StatusOr<Response>> call_unary(http::Exchange& exchange,
                                                            int64_t timeout_ms, Request request,
                                                            Start start) {
  struct Call {
    explicit Call(const boost::asio::any_io_executor& executor) : done(executor) {}
    grpc::ClientContext context;
    Request request;
    Response response;
    grpc::Status status;
    http::Event done;
  };
  auto call = std::make_shared<Call>(exchange.executor());
  call->request = std::move(request);
  prepare(call->context, exchange, timeout_ms);
  http::Exchange::DisconnectGuard guard(exchange, [&call] { call->context.TryCancel(); });
  // The closure may die on gRPC's thread: by then it must have given away what belongs to the
  // strand.
  start(&call->context, &call->request, &call->response,
        [call, executor = keep_running(exchange.executor())](grpc::Status status) mutable {
          boost::asio::post(executor, [call = std::move(call), status = std::move(status)] {
            call->status = status;
            call->done.set();
          });
          executor = {};
        });
  co_await call->done.wait();
  if (!call->status.ok()) co_return from_grpc_status(call->status);
  co_return std::move(call->response);
}

// What both kinds of streams share. Owned by itself from start() to gRPC's last callback, and by
// the Stream below.
template <typename Base, typename Response>
class StreamReactor : public Base {
 public:
  explicit StreamReactor(http::Exchange& exchange)
      : changed(exchange.executor()), executor_(keep_running(exchange.executor())) {}

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
      reactor.changed.set();
    });
  }

  // Of the strand. `incoming` belongs to gRPC while `reading`.
  grpc::ClientContext context;
  Response incoming;
  http::Event changed;
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
      self->changed.set();
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
  ReadStream(http::Exchange& exchange, int64_t timeout_ms, Request request, Bind bind)
      : request_(std::move(request)),
        reactor_(std::make_shared<Reactor>(exchange)),
        guard_(exchange, [reactor = reactor_.get()] { reactor->cancel(); }) {
    prepare(reactor_->context, exchange, timeout_ms);
    bind(&reactor_->context, &request_, reactor_.get());
    reactor_->start(reactor_);
  }
  ~ReadStream() { reactor_->abandon(); }
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;

  // The next response; false at the end, when status() tells why.
  boost::asio::awaitable<bool> next(Response& response) {
    while (!reactor_->done && !reactor_->has_response) co_await reactor_->changed.wait();
    if (!reactor_->has_response) co_return false;
    response = std::move(reactor_->incoming);
    reactor_->read_next();
    co_return true;
  }

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
  DuplexStream(http::Exchange& exchange, int64_t timeout_ms, Bind bind)
      : reactor_(std::make_shared<Reactor>(exchange)),
        guard_(exchange, [reactor = reactor_.get()] { reactor->cancel(); }) {
    prepare(reactor_->context, exchange, timeout_ms);
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
  boost::asio::awaitable<void> changed() { return reactor_->changed.wait(); }

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
