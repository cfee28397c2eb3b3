#include "services/gateway/grpc/upsert_forward.h"

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/request/document.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {
namespace {

// The upstream call is read, and written, outside of its own reactions until these are given up.
constexpr int kPumps = 2;

}  // namespace

UpsertForward::UpsertForward(Inbound inbound)
    : inbound_(std::move(inbound)),
      upstream_(*this),
      client_deadline_(inbound_, upstream_, inbound_.services().config.limits.body_timeout_ms,
                       "body_timeout_ms",
                       "the client sent no documents and took no acknowledgement") {
  if (!inbound_.admission().ok()) {
    Finish(inbound_.ended(inbound_.admission()));
    return;
  }
  inbound_.prepare(upstream_.context, std::nullopt);
  inbound_.services().stubs->retrieval->async()->UpsertDocuments(&upstream_.context, &upstream_);
  upstream_.AddMultipleHolds(kPumps);
  upstream_.StartRead(&response_);
  upstream_.StartCall();
  std::lock_guard lock(mutex_);
  StartRead(&received_);
  watch_client();
}

void UpsertForward::OnReadDone(bool ok) {
  absl::Status failure;
  if (ok) {
    failure = take_message();
  } else {
    request_.clear_items();
  }
  std::lock_guard lock(mutex_);
  if (down_ended_) return;  // and the other pump with it
  failure_ = std::move(failure);
  passed_on_ += request_.items_size();
  writing_ = true;
  watch_client();
  if (request_.items().empty() && (!ok || !failure_.ok())) {
    upstream_.StartWritesDone();
  } else {
    upstream_.StartWrite(&request_);
  }
}

absl::Status UpsertForward::take_message() {
  absl::Status status = parse_message(received_, request_);
  received_.Clear();  // or a large message would lie here twice until the next one
  if (status.ok()) status = check_corpus("corpus", request_.corpus());
  if (!status.ok()) {
    request_.clear_items();
    return status;
  }
  for (int i = 0; i < request_.items_size(); ++i) {
    status = check_document("", request_.items(i), inbound_.services().config.max_document_bytes);
    if (status.ok()) continue;
    request_.mutable_items()->DeleteSubrange(i, request_.items_size() - i);
    return with_prefix(status, str_cat("document ", taken_ + i, " of this call: "));
  }
  taken_ += request_.items_size();
  return absl::OkStatus();
}

// It is the client's turn to take an acknowledgement, and to send more once all is acknowledged.
void UpsertForward::watch_client() {
  const bool reading = !writing_ && !up_ended_;
  if (!down_ended_ && (acknowledging_ || (reading && acknowledged_ >= passed_on_))) {
    client_deadline_.arm();
  } else {
    client_deadline_.disarm();
  }
}

void UpsertForward::OnWriteDone(bool ok) {
  if (ok) {
    {
      std::lock_guard lock(mutex_);
      acknowledging_ = false;
      watch_client();
    }
    upstream_.StartRead(&response_);
  } else {
    upstream_.context.TryCancel();
    end_down();
  }
}

// A pump gives up its hold as its last act: the other one's may be the call's end.
void UpsertForward::end_down() {
  bool end_up;
  {
    std::lock_guard lock(mutex_);
    down_ended_ = true;
    watch_client();
    end_up = !writing_ && !std::exchange(up_ended_, true);
  }
  if (end_up) upstream_.RemoveHold();
  upstream_.RemoveHold();
}

void UpsertForward::Upstream::OnReadDone(bool ok) {
  if (ok) {
    std::lock_guard lock(owner.mutex_);
    owner.acknowledged_ = owner.response_.accepted();
    owner.acknowledging_ = true;
    owner.watch_client();
    owner.sent_ = to_bytes(owner.response_);
    owner.StartWrite(&owner.sent_);
  } else {
    owner.end_down();
  }
}

void UpsertForward::Upstream::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(owner.mutex_);
    if (ok && !owner.down_ended_) {
      if (!owner.failure_.ok()) {
        StartWritesDone();
      } else {
        owner.writing_ = false;
        owner.StartRead(&owner.received_);
        owner.watch_client();
      }
      return;
    }
    owner.writing_ = false;
    if (std::exchange(owner.up_ended_, true)) return;
  }
  RemoveHold();
}

void UpsertForward::Upstream::OnWritesDoneDone(bool) {
  {
    std::lock_guard lock(owner.mutex_);
    owner.writing_ = false;
    if (std::exchange(owner.up_ended_, true)) return;
  }
  RemoveHold();
}

void UpsertForward::Upstream::OnDone(const grpc::Status& status) {
  absl::Status told = owner.client_deadline_.end_of(status);
  if (told.ok()) {
    std::lock_guard lock(owner.mutex_);
    told = owner.failure_;
  }
  owner.Finish(owner.inbound_.ended(told));
}

}  // namespace ragcache::gateway
