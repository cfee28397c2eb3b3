#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/strings.h"
#include "services/gateway/document_parser.h"
#include "services/gateway/documents.h"
#include "services/gateway/openai_error.h"
#include "services/gateway/upstream.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;
using UpsertStream = DuplexStream<pb::UpsertDocumentsRequest, pb::UpsertDocumentsResponse>;

constexpr int kMaxBatchItems = 64;
constexpr size_t kMaxBatchBytes = 1 << 20;

bool is_json(const http::Request& request) {
  return check_content_type(request, {"application/json"}).ok();
}

bool wants_progress(const http::Request& request) {
  const std::string* asked = http::find_parameter(request.query, "progress");
  if (asked != nullptr) return *asked == "1" || *asked == "true";
  return request.headers.get("accept").find("application/x-ndjson") != std::string_view::npos;
}

// One upload. At any time it holds one piece of the body, one line and two batches (one of them on
// its way to Retrieval): the client is read no faster than Retrieval takes.
class Upload {
 public:
  Upload(Services& services, http::Exchange& exchange)
      : services_(services),
        exchange_(exchange),
        progress_(wants_progress(exchange.request())),
        // It may take hours: the client's body and Retrieval's acknowledgements pace it.
        upsert_(exchange, kNoTimeout, [&services](auto* context, auto* reactor) {
          services.retrieval->async()->UpsertDocuments(context, reactor);
        }) {}

  awaitable<void> run() {
    absl::Status read;
    if (is_json(exchange_.request())) {
      read = co_await send_json();
    } else {
      read = co_await send_lines();
    }
    if (exchange_.disconnected()) co_return;
    // Also after a bad line: what came before it is kept, and its number is told.
    absl::Status flushed = co_await flush();
    while (upsert_.writing() && !upsert_.done()) co_await step();
    upsert_.end_writes();
    while (!upsert_.done()) co_await step();
    if (exchange_.disconnected()) co_return;
    services_.metrics.uploaded_documents.Increment(static_cast<double>(latest_.accepted()));
    absl::Status status = upsert_.status();
    if (status.ok()) status = std::move(read);
    if (status.ok()) status = std::move(flushed);
    co_await answer(std::move(status));
  }

 private:
  awaitable<absl::Status> send_json() {
    absl::StatusOr<std::string> body = co_await exchange_.read_body();
    if (!body.ok()) co_return body.status();
    absl::StatusOr<std::vector<DocumentItem>> items =
        parse_documents(*body, services_.config.max_document_bytes);
    if (!items.ok()) co_return items.status();
    absl::Status status = co_await send(*items);
    co_return status;
  }

  awaitable<absl::Status> send_lines() {
    DocumentLines lines(services_.config.max_document_bytes);
    std::vector<DocumentItem> items;
    bool more = true;
    while (more) {
      absl::StatusOr<std::string_view> chunk = co_await exchange_.read_chunk();
      if (!chunk.ok()) co_return chunk.status();
      more = !chunk->empty();
      items.clear();
      absl::Status parsed = more ? lines.feed(*chunk, items) : lines.finish(items);
      absl::Status sent = co_await send(items);
      if (!parsed.ok()) co_return parsed;
      if (!sent.ok()) co_return sent;
      // What is left of a batch goes out when nothing is on its way, so that a slow client's
      // documents do not wait for its next ones.
      if (!upsert_.writing()) sent = co_await flush();
      if (!sent.ok()) co_return sent;
    }
    co_return absl::OkStatus();
  }

  awaitable<absl::Status> send(std::vector<DocumentItem>& items) {
    for (DocumentItem& item : items) {
      const size_t bytes = item.text().size() + item.title().size();
      if (batch_.items_size() == kMaxBatchItems ||
          (batch_.items_size() > 0 && batch_bytes_ + bytes > kMaxBatchBytes)) {
        absl::Status status = co_await flush();
        if (!status.ok()) co_return status;
      }
      batch_bytes_ += bytes;
      *batch_.add_items() = std::move(item);
    }
    co_return absl::OkStatus();
  }

  // Sends the batch when the one before has gone.
  awaitable<absl::Status> flush() {
    while (upsert_.writing() && !upsert_.done()) co_await step();
    if (batch_.items_size() == 0) co_return absl::OkStatus();
    const bool taken = upsert_.write(std::move(batch_));
    batch_.Clear();
    batch_bytes_ = 0;
    co_return taken ? absl::OkStatus()
                    : absl::UnavailableError("retrieval takes no more documents");
  }

  OutJson counts() const {
    return {{"accepted", latest_.accepted()}, {"tokens", latest_.tokens()}};
  }

  awaitable<void> step() {
    co_await upsert_.changed();
    co_await step_progress();
  }

  awaitable<void> step_progress() {
    pb::UpsertDocumentsResponse response;
    if (!upsert_.take(response)) co_return;
    latest_ = response;
    if (!progress_ || exchange_.disconnected()) co_return;
    OutJson value = counts();
    co_await write_line(std::move(value));
  }

  awaitable<void> write_line(OutJson value) {
    if (!exchange_.response_started()) {
      http::Response head;
      head.content_type = "application/x-ndjson";
      co_await exchange_.start_stream(std::move(head));
    }
    std::string line = dump_json(value) + "\n";
    co_await exchange_.write(std::move(line));
  }

  awaitable<void> answer(absl::Status status) {
    OutJson value;
    if (status.ok()) {
      value = counts();
      if (progress_) value["done"] = true;
    } else {
      absl::Status told(status.code(), str_cat(status.message(), " (", latest_.accepted(),
                                               " documents before it were accepted)"));
      status.ForEachPayload([&](absl::string_view name, const absl::Cord& payload) {
        told.SetPayload(name, payload);
      });
      status = std::move(told);
      value["error"] = error_json(status);
      value["accepted"] = latest_.accepted();
    }
    if (progress_ && (status.ok() || exchange_.response_started())) {
      co_await write_line(std::move(value));
      if (!exchange_.disconnected()) co_await exchange_.finish_stream();
    } else if (status.ok()) {
      co_await respond_json(exchange_, std::move(value));
    } else {
      http::Response response = error_response(status);
      response.body = dump_json(value);
      co_await exchange_.respond(std::move(response));
    }
  }

  Services& services_;
  http::Exchange& exchange_;
  const bool progress_;
  UpsertStream upsert_;
  pb::UpsertDocumentsRequest batch_;
  size_t batch_bytes_ = 0;
  pb::UpsertDocumentsResponse latest_;
};

}  // namespace

awaitable<void> handle_upload(Services& services, http::Exchange& exchange) {
  absl::Status type = check_content_type(
      exchange.request(),
      {"application/json", "application/x-ndjson", "application/jsonl", "application/x-jsonlines"});
  if (!type.ok()) {
    co_await respond_error(exchange, std::move(type));
    co_return;
  }
  Upload upload(services, exchange);
  co_await upload.run();
}

}  // namespace ragcache::gateway
