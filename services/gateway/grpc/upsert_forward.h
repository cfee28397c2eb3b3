#pragma once

#include <mutex>

#include "services/gateway/grpc/forward.h"

namespace ragcache::gateway {

// RagService.UpsertDocuments: two pumps. Documents go up message by message, checked; those before
// a bad one still go, and the call then fails naming it. Acknowledgements come down. A client may
// take its time only while the service is at work on what it has sent.
class UpsertForward final : public grpc::ServerBidiReactor<Bytes, Bytes> {
 public:
  // Owned by itself.
  explicit UpsertForward(Inbound inbound);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { upstream_.context.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  struct Upstream : public grpc::ClientBidiReactor<retrieval::v1::UpsertDocumentsRequest,
                                                   retrieval::v1::UpsertDocumentsResponse> {
    explicit Upstream(UpsertForward& owner_in) : owner(owner_in) {}
    void OnReadDone(bool ok) override;
    void OnWriteDone(bool ok) override;
    void OnWritesDoneDone(bool ok) override;
    void OnDone(const grpc::Status& status) override;

    UpsertForward& owner;
    grpc::ClientContext context;
  };

  // Takes the client's message, cut before its first bad document, and tells what is wrong.
  absl::Status take_message();
  void watch_client();  // REQUIRES: mutex_ held
  void end_down();

  const Inbound inbound_;
  Upstream upstream_;
  Bytes received_;
  retrieval::v1::UpsertDocumentsRequest request_;  // what was received, checked
  retrieval::v1::UpsertDocumentsResponse response_;
  Bytes sent_;          // the response
  uint64_t taken_ = 0;  // documents of earlier messages

  std::mutex mutex_;  // guards what follows
  ClientDeadline<Upstream> client_deadline_;
  uint64_t passed_on_ = 0;  // documents
  uint64_t acknowledged_ = 0;
  absl::Status failure_;        // of a document
  bool writing_ = false;        // to the service
  bool acknowledging_ = false;  // to the client
  bool up_ended_ = false;
  bool down_ended_ = false;
};

}  // namespace ragcache::gateway
