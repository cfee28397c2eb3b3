#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "services/retrieval/service.h"

namespace ragcache::retrieval {

// One UpsertDocuments call. Reading goes ahead of the work by a bounded number of documents; the
// work takes what has arrived, at most a batch at a time, and after each batch reports the totals
// so far. Reports that a slow client has not taken yet merge into one.
//
// A bad document ends the call, after those before it are stored. gRPC owns the object from its
// construction until OnDone(), which comes after finish() and every operation under way.
class UpsertCall final
    : public grpc::ServerBidiReactor<v1::UpsertDocumentsRequest, v1::UpsertDocumentsResponse> {
 public:
  // One transaction; also what an answer to the client, and a crash's loss, is counted in. At least
  // one document.
  static constexpr size_t kBatchDocuments = 32;
  static constexpr size_t kBatchBytes = 256 << 10;
  // Reading stops while so much waits.
  static constexpr size_t kWaitingDocumentsMax = 256;
  static constexpr size_t kWaitingBytesMax = 16 << 20;

  explicit UpsertCall(Service& service);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  absl::Status take_items();
  bool has_room() const;
  void start_work();
  void work();
  void report(const Corpus::Ingested& ingested);
  void finish(const absl::Status& status);

  Service& service_;
  const CallSlot slot_;
  std::stop_source stop_;
  v1::UpsertDocumentsRequest request_;  // belongs to the read under way
  uint64_t received_ = 0;               // belongs to the reading side

  std::mutex mutex_;
  // Guarded by mutex_:
  std::shared_ptr<Corpus> corpus_;  // since the first message
  std::deque<DocumentText> waiting_;
  size_t waiting_bytes_ = 0;
  bool reading_ = true;
  bool read_all_ = false;
  absl::Status read_error_;  // why reading ended early
  bool working_ = false;
  bool writing_ = false;
  bool report_due_ = false;
  std::optional<absl::Status> end_;  // set once the work is over
  v1::UpsertDocumentsResponse totals_;

  v1::UpsertDocumentsResponse response_;  // belongs to the write under way
};

}  // namespace ragcache::retrieval
