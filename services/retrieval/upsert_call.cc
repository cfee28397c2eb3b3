#include "services/retrieval/upsert_call.h"

#include <boost/asio/post.hpp>
#include <utility>
#include <vector>

#include "common/rpc/status.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/utf8.h"

namespace ragcache::retrieval {
namespace {

absl::Status check_field(const std::string& value, absl::string_view name, size_t max,
                         bool may_be_empty) {
  if (value.empty() && !may_be_empty) {
    return absl::InvalidArgumentError(str_cat(name, ": is empty"));
  }
  if (value.size() > max) {
    return absl::InvalidArgumentError(str_cat(name, ": ", value.size(), " bytes, at most ", max));
  }
  for (size_t at = 0; at < value.size();) {
    const Utf8Char character = read_utf8(value, at);
    if (!character.valid) {
      return absl::InvalidArgumentError(str_cat(name, ": no valid UTF-8 at byte ", at));
    }
    at += character.n_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<DocumentText> read_item(v1::UpsertDocumentsRequest::Item& item) {
  RAG_RETURN_IF_ERROR(check_field(item.id(), "id", Limits::kIdBytes, false));
  if (parse_piece_id(item.id()).has_value()) {
    return absl::InvalidArgumentError(str_cat("id: ends in '",
                                              item.id().substr(item.id().rfind('#')),
                                              "', as the ids of a document's pieces do"));
  }
  RAG_RETURN_IF_ERROR(check_field(item.title(), "title", Limits::kTitleBytes, true));
  RAG_RETURN_IF_ERROR(check_field(item.text(), "text", Limits::kTextBytes, false));
  RAG_ASSIGN_OR_RETURN(const Metadata metadata, parse_metadata(item.metadata()));
  return DocumentText{.id = std::move(*item.mutable_id()),
                      .title = std::move(*item.mutable_title()),
                      .text = std::move(*item.mutable_text()),
                      .metadata = metadata_json(metadata)};
}

size_t size_of(const DocumentText& document) {
  return document.title.size() + document.text.size() + document.metadata.size();
}

// A status message is UTF-8 too.
std::string named(const std::string& id) {
  return check_field(id, "id", Limits::kIdBytes, false).ok() ? str_cat(" ('", id, "')") : "";
}

}  // namespace

UpsertCall::UpsertCall(Service& service) : service_(service), slot_(service.uploads()) {
  if (const absl::Status status = slot_.status(); !status.ok()) {
    Finish(to_grpc_status(status));
    return;
  }
  StartRead(&request_);
}

void UpsertCall::OnReadDone(bool ok) {
  const absl::Status taken = ok ? take_items() : absl::OkStatus();
  bool read_on = false;
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (end_.has_value()) return;
    if (!ok) read_all_ = true;
    if (!taken.ok()) {
      read_all_ = true;
      read_error_ = taken;
    }
    if (!read_all_ && has_room()) read_on = reading_ = true;
  }
  if (read_on) StartRead(&request_);
  start_work();
}

// REQUIRES: the caller holds mutex_.
bool UpsertCall::has_room() const {
  return waiting_.size() < kWaitingDocumentsMax && waiting_bytes_ < kWaitingBytesMax;
}

// Moves the items of `request_` to the waiting ones, up to the first bad one.
absl::Status UpsertCall::take_items() {
  if (request_.items_size() > Limits::kItemsPerMessage) {
    return absl::InvalidArgumentError(str_cat(
        "items: ", request_.items_size(), " in one message, at most ", Limits::kItemsPerMessage));
  }
  if (corpus_ == nullptr) {
    RAG_ASSIGN_OR_RETURN(std::shared_ptr<Corpus> corpus,
                         service_.corpora().find(request_.corpus()));
    const std::lock_guard lock(mutex_);
    corpus_ = std::move(corpus);
  }
  for (v1::UpsertDocumentsRequest::Item& item : *request_.mutable_items()) {
    const std::string name = named(item.id());
    absl::StatusOr<DocumentText> document = read_item(item);
    if (!document.ok()) {
      return absl::InvalidArgumentError(str_cat("document ", received_, " of this call", name, ", ",
                                                document.status().message()));
    }
    ++received_;
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += size_of(*document);
    waiting_.push_back(*std::move(document));
  }
  return absl::OkStatus();
}

void UpsertCall::start_work() {
  const std::lock_guard lock(mutex_);
  if (working_ || end_.has_value() || (waiting_.empty() && !read_all_)) return;
  working_ = true;
  boost::asio::post(service_.write_pool(), [this] { work(); });
}

// One batch; then the next is posted, so that several calls take turns.
void UpsertCall::work() {
  std::vector<DocumentText> batch;
  bool read_on = false;
  bool all_done;
  absl::Status read_error;
  std::shared_ptr<Corpus> corpus;
  {
    const std::lock_guard lock(mutex_);
    for (size_t bytes = 0;
         !waiting_.empty() && batch.size() < kBatchDocuments && bytes < kBatchBytes;) {
      bytes += size_of(waiting_.front());
      waiting_bytes_ -= size_of(waiting_.front());
      batch.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    read_on = !reading_ && !read_all_ && has_room();
    if (read_on) reading_ = true;
    all_done = read_all_ && batch.empty();
    read_error = read_error_;
    corpus = corpus_;
  }
  if (read_on) StartRead(&request_);
  if (stop_.stop_requested()) return finish(absl::CancelledError("the caller has gone"));
  if (all_done) {
    if (corpus != nullptr) corpus->settle();
    return finish(read_error);
  }
  const auto ingested = corpus->upsert(batch, stop_.get_token());
  if (!ingested.ok()) return finish(ingested.status());
  report(*ingested);
  // Once the lock is released without work to do, a read that ends may end the call.
  const std::lock_guard lock(mutex_);
  working_ = !waiting_.empty() || read_all_;
  if (working_) boost::asio::post(service_.write_pool(), [this] { work(); });
}

void UpsertCall::report(const Corpus::Ingested& ingested) {
  Metrics& metrics = service_.metrics();
  metrics.ingested_documents.Increment(static_cast<double>(ingested.documents));
  metrics.ingested_tokens.Increment(static_cast<double>(ingested.tokens));
  metrics.documents.Set(static_cast<double>(service_.corpora().store().document_count()));
  {
    const std::lock_guard lock(mutex_);
    totals_.set_accepted(totals_.accepted() + ingested.documents);
    totals_.set_tokens(totals_.tokens() + ingested.tokens);
    totals_.set_pieces(totals_.pieces() + ingested.pieces);
    if (writing_) {
      report_due_ = true;
      return;
    }
    writing_ = true;
    response_ = totals_;
  }
  StartWrite(&response_);
}

void UpsertCall::OnWriteDone(bool ok) {
  bool write_on = false;
  std::optional<absl::Status> end;
  {
    const std::lock_guard lock(mutex_);
    writing_ = write_on = ok && report_due_;
    report_due_ = false;
    if (write_on) {
      response_ = totals_;
    } else {
      end = end_;
    }
  }
  if (write_on) {
    StartWrite(&response_);
  } else if (end.has_value()) {
    Finish(to_grpc_status(*end));
  }
}

// Ends the call, after the last report is out. Called once, by work().
void UpsertCall::finish(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    end_ = status;
    if (writing_) return;  // OnWriteDone() goes on
  }
  Finish(to_grpc_status(status));
}

}  // namespace ragcache::retrieval
