#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/grpc/messages.h"
#include "services/gateway/services.h"
#include "services/gateway/stubs.h"

// Calls of clients passed on to the services behind, one reactor each, owned by itself from its
// creation to gRPC's last callback. Everything runs on gRPC's threads and only copies and starts
// the next operation. A message is taken from one side only when the other has taken the one
// before.
namespace ragcache::gateway {

enum class Access { kClient, kAdmin };

// What every call has: who asks, for how long, and what it is counted as.
class Inbound {
 public:
  // `method` is a literal. Also gives the client its request id back.
  Inbound(Services& services, grpc::CallbackServerContext* context, const char* method,
          Access access = Access::kClient);

  // UNAUTHENTICATED if the client may not ask.
  const absl::Status& admission() const { return admission_; }
  const std::string& request_id() const { return request_id_; }
  const std::string& tenant() const { return tenant_; }
  TimePoint arrival() const { return arrival_; }
  Services& services() const { return services_; }

  // Of a call to a service: the client's deadline, at most `timeout_ms` away; its request and trace
  // ids.
  void prepare(grpc::ClientContext& context, std::optional<int64_t> timeout_ms) const;

  // Counts and logs the call. What its client is told.
  grpc::Status ended(const absl::Status& status) const;
  // Tells the client this status at once, though it may not have taken what it was sent before, and
  // ends what is under way with it. The call has to be finished all the same.
  void cancel(const absl::Status& status) const;

 private:
  Services& services_;
  grpc::CallbackServerContext* const context_;
  const char* const method_;
  const TimePoint arrival_;
  std::string request_id_;
  std::string trace_parent_;
  std::string tenant_;
  absl::Status admission_;
};

// A unary call. `convert` makes the client's answer of the service's.
template <typename Request, typename Upstream>
class UnaryForward final : public grpc::ServerUnaryReactor {
 public:
  using Convert = std::function<absl::StatusOr<Bytes>(Upstream&)>;

  UnaryForward(Inbound inbound, Request request, Bytes* response, Convert convert)
      : inbound_(std::move(inbound)),
        request_(std::move(request)),
        response_(response),
        convert_(std::move(convert)) {}

  template <typename Async>
  void start(Async* stub, UnaryMethod<Async, Request, Upstream> method) {
    inbound_.prepare(context_, inbound_.services().config.upstream_timeout_ms);
    (stub->*method)(&context_, &request_, &upstream_, [this](const grpc::Status& status) {
      finish(status.ok() ? answer() : from_grpc_status(status));
    });
  }
  void finish(const absl::Status& status) { Finish(inbound_.ended(status)); }

  void OnCancel() override { context_.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  absl::Status answer() {
    RAG_ASSIGN_OR_RETURN(*response_, convert_(upstream_));
    return absl::OkStatus();
  }

  const Inbound inbound_;
  grpc::ClientContext context_;
  const Request request_;
  Upstream upstream_;
  Bytes* const response_;
  const Convert convert_;
};

// How long a call waits for its client; then it ends as DEADLINE_EXCEEDED. The call behind, whose
// reactor is `Upstream`, is held while the alarm is set, so that both are there when it goes off.
template <typename Upstream>
class ClientDeadline {
 public:
  // `missing` is what the client did not do for `timeout_ms`, the value of `option`.
  ClientDeadline(const Inbound& inbound, Upstream& upstream, int64_t timeout_ms,
                 std::string_view option, std::string_view missing)
      : inbound_(inbound),
        upstream_(upstream),
        timeout_ms_(timeout_ms),
        status_(absl::DeadlineExceededError(
            str_cat(missing, " for ", timeout_ms, " ms (", option, ")"))) {}

  // From now on, whatever it was before. REQUIRES: upstream is held, or in a reaction of its own.
  void arm() {
    upstream_.AddHold();
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(deadline_in(std::chrono::milliseconds(timeout_ms_)), [this](bool expired) {
      if (expired) {
        expired_ = true;
        inbound_.cancel(status_);
      }
      upstream_.RemoveHold();  // perhaps the end of this
    });
  }
  void disarm() { alarm_.reset(); }

  // What the call ended with, which may be but a consequence: that it was cancelled.
  absl::Status end_of(const grpc::Status& upstream) const {
    return expired_ ? status_ : from_grpc_status(upstream);
  }

 private:
  const Inbound& inbound_;
  Upstream& upstream_;
  const int64_t timeout_ms_;
  const absl::Status status_;
  std::atomic<bool> expired_ = false;
  std::unique_ptr<grpc::Alarm> alarm_;  // when it goes, its function is called with false
};

// A call whose answer is a stream.
template <typename Response>
class StreamForward : public grpc::ServerWriteReactor<Bytes> {
 public:
  explicit StreamForward(Inbound inbound)
      : inbound_(std::move(inbound)),
        upstream_(*this),
        write_deadline_(inbound_, upstream_, inbound_.services().config.limits.write_timeout_ms,
                        "write_timeout_ms", "the client took nothing of the answer") {}

  // `bind` is (context, reactor) -> void, the stub's method.
  template <typename Bind>
  void start(int64_t timeout_ms, Bind bind) {
    inbound_.prepare(upstream_.context, timeout_ms);
    bind(&upstream_.context, &upstream_);
    // Reads start when the client has taken the response before, outside of the call's own
    // reactions: that takes a hold.
    upstream_.AddHold();
    upstream_.StartRead(&response_);
    upstream_.StartCall();
  }
  void finish(const absl::Status& status) { Finish(inbound_.ended(status)); }
  const Inbound& inbound() const { return inbound_; }

  void OnWriteDone(bool ok) override {
    write_deadline_.disarm();
    if (ok) {
      upstream_.StartRead(&response_);
    } else {
      upstream_.context.TryCancel();
      upstream_.RemoveHold();
    }
  }
  void OnCancel() override { upstream_.context.TryCancel(); }
  void OnDone() override { delete this; }

 protected:
  // Sees what the client gets, and may change it.
  virtual void edit(Response&) {}

 private:
  struct Upstream : public grpc::ClientReadReactor<Response> {
    explicit Upstream(StreamForward& owner_in) : owner(owner_in) {}
    void OnReadDone(bool ok) override {
      if (ok) {
        owner.edit(owner.response_);
        owner.write_deadline_.arm();
        owner.bytes_ = to_bytes(owner.response_);
        owner.StartWrite(&owner.bytes_);
      } else {
        this->RemoveHold();
      }
    }
    void OnDone(const grpc::Status& status) override {
      owner.finish(owner.write_deadline_.end_of(status));
    }

    StreamForward& owner;
    grpc::ClientContext context;
  };

  const Inbound inbound_;
  Upstream upstream_;
  ClientDeadline<Upstream> write_deadline_;
  Response response_;
  Bytes bytes_;  // of the response, for the client
};

}  // namespace ragcache::gateway
