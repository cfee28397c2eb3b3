#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/http/error.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/text/text.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/body.h"
#include "services/gateway/http/document_lines.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/http/openai_error.h"
#include "services/gateway/request/field_error.h"

namespace ragcache::gateway {
namespace {

namespace pb = retrieval::v1;
using boost::asio::awaitable;

constexpr int kMaxBatchItems = 64;
constexpr size_t kMaxBatchBytes = 1 << 20;

bool wants_progress(const http::Request& request) {
  const std::string* asked = http::find_parameter(request.query, "progress");
  if (asked != nullptr) return *asked == "1" || *asked == "true";
  return request.headers.get("accept").find("application/x-ndjson") != std::string_view::npos;
}

std::optional<TextFormat> text_format_of(const http::Request& request) {
  if (check_content_type(request, {"text/plain"}).ok()) return TextFormat::kPlain;
  if (check_content_type(request, {"text/markdown"}).ok()) return TextFormat::kMarkdown;
  if (check_content_type(request, {"text/html"}).ok()) return TextFormat::kHtml;
  return std::nullopt;
}

// 415 if the Content-Type says that the bytes of a text mean other characters than in UTF-8.
absl::Status check_charset(const http::Request& request) {
  constexpr std::string_view kParameter = "charset=";
  const std::string_view type = request.headers.get("content-type");
  const auto found = std::ranges::search(
      type, kParameter, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
  std::string_view charset(found.end(), type.end());
  charset = charset.substr(0, charset.find(';'));
  for (std::string_view known : {"", "utf-8", "\"utf-8\"", "us-ascii"}) {
    if (http::equals_ignore_case(charset, known)) return absl::OkStatus();
  }
  return http::error(
      415, str_cat("Content-Type: charset must be utf-8, not `", charset.substr(0, 100), "`"));
}

void add(pb::UpsertDocumentsResponse& sum, const pb::UpsertDocumentsResponse& more) {
  sum.set_accepted(sum.accepted() + more.accepted());
  sum.set_tokens(sum.tokens() + more.tokens());
  sum.set_pieces(sum.pieces() + more.pieces());
}

OutJson counts_json(const pb::UpsertDocumentsResponse& counts) {
  return {
      {"accepted", counts.accepted()}, {"tokens", counts.tokens()}, {"pieces", counts.pieces()}};
}

// One upload. At any time it holds one piece of the body, one line and two batches (one of them on
// its way to retrieval): the client is read no faster than retrieval takes. Documents go out in the
// order they came in; where the next one is of another corpus, retrieval's call is ended and
// another one begun.
class Upload {
 public:
  Upload(Call& call, std::string corpus, bool progress)
      : call_(call),
        exchange_(call.exchange),
        default_corpus_(std::move(corpus)),
        progress_(progress) {}

  // The whole body as JSON or as lines of it.
  awaitable<absl::Status> send_json() {
    Body body(exchange_);
    absl::StatusOr<std::string> text =
        co_await body.read_all(call_.config().limits.max_body_bytes, call_.deadline);
    if (!text.ok()) co_return text.status();
    absl::StatusOr<std::vector<ParsedDocument>> documents =
        parse_documents(*text, call_.config().max_document_bytes);
    if (!documents.ok()) co_return documents.status();
    absl::Status status = co_await send(*documents);
    co_return status;
  }

  awaitable<absl::Status> send_lines() {
    Body body(exchange_);
    DocumentLines lines(call_.config().max_document_bytes);
    std::vector<ParsedDocument> documents;
    bool more = true;
    while (more) {
      absl::StatusOr<std::string_view> chunk = co_await body.read_chunk();
      if (!chunk.ok()) co_return chunk.status();
      more = !chunk->empty();
      documents.clear();
      absl::Status parsed = more ? lines.feed(*chunk, documents) : lines.finish(documents);
      absl::Status sent = co_await send(documents);
      if (!parsed.ok()) co_return parsed;
      // What is left of a batch goes out when nothing is on its way, so that a slow client's
      // documents do not wait for its next ones.
      if (sent.ok() && upsert_ && !upsert_->writing()) sent = co_await flush();
      if (!sent.ok()) co_return sent;
    }
    co_return absl::OkStatus();
  }

  // The whole body as one document, which the query names.
  awaitable<absl::Status> send_text(TextFormat format) {
    absl::Status charset = check_charset(call_.request());
    if (!charset.ok()) co_return charset;
    const std::string* id = http::find_parameter(call_.request().query, "id");
    if (id == nullptr) {
      co_return invalid_field("id",
                              "is required with a text, as ?id=", "missing_required_parameter");
    }
    Body body(exchange_);
    absl::StatusOr<std::string> bytes =
        co_await body.read_all(call_.config().limits.max_body_bytes, call_.deadline);
    if (!bytes.ok()) co_return bytes.status();
    absl::StatusOr<TitledText> text = read_text(format, *bytes);
    if (!text.ok()) co_return invalid_field("body", str_cat(text.status().message()));
    const std::string* title = http::find_parameter(call_.request().query, "title");
    std::vector<ParsedDocument> documents(1);
    DocumentItem& item = documents[0].item;
    item.set_id(*id);
    item.set_title(title == nullptr ? std::move(text->title) : *title);
    item.set_text(std::move(text->text));
    absl::Status status = check_document("", item, call_.config().max_document_bytes);
    if (status.ok()) status = co_await send(documents);
    co_return status;
  }

  awaitable<absl::Status> send(std::vector<ParsedDocument>& documents) {
    for (ParsedDocument& document : documents) {
      std::string& corpus = document.corpus.empty() ? default_corpus_ : document.corpus;
      if (upsert_ && corpus != corpus_) {
        absl::Status closed = co_await close();
        if (!closed.ok()) co_return closed;
      }
      if (!upsert_) {
        corpus_ = corpus;
        upsert_.emplace(call_);
      }
      const size_t bytes = document.item.ByteSizeLong();
      if (batch_.items_size() == kMaxBatchItems ||
          (batch_.items_size() > 0 && batch_bytes_ + bytes > kMaxBatchBytes)) {
        absl::Status status = co_await flush();
        if (!status.ok()) co_return status;
      }
      batch_bytes_ += bytes;
      *batch_.add_items() = std::move(document.item);
    }
    co_return absl::OkStatus();
  }

  // Until all that was sent is acknowledged or refused.
  awaitable<absl::Status> close() {
    if (!upsert_) co_return absl::OkStatus();
    absl::Status flushed = co_await flush();
    while (upsert_->writing() && !upsert_->done()) co_await step();
    upsert_->end_writes();
    while (!upsert_->done()) co_await step();
    absl::Status status = upsert_->status();
    upsert_.reset();
    add(closed_, std::exchange(latest_, {}));
    co_return status.ok() ? flushed : status;
  }

  pb::UpsertDocumentsResponse counts() const {
    pb::UpsertDocumentsResponse counts = closed_;
    add(counts, latest_);
    return counts;
  }

  // A line of the answer, which begins with the first.
  awaitable<void> write_line(OutJson value) {
    if (!exchange_.response_started()) {
      http::Response head;
      head.content_type = "application/x-ndjson";
      co_await exchange_.start_stream(std::move(head));
    }
    std::string line = dump_json(value) + "\n";
    co_await exchange_.write(std::move(line));
  }

 private:
  // Sends the batch when the one before has gone.
  awaitable<absl::Status> flush() {
    while (upsert_->writing() && !upsert_->done()) co_await step();
    if (batch_.items_size() == 0) co_return absl::OkStatus();
    batch_.set_corpus(corpus_);
    batch_bytes_ = 0;
    const bool taken = upsert_->write(std::exchange(batch_, {}));
    co_return taken ? absl::OkStatus()
                    : absl::UnavailableError("retrieval takes no more documents");
  }

  awaitable<void> step() {
    co_await upsert_->changed();
    pb::UpsertDocumentsResponse response;
    if (!upsert_->take(response)) co_return;
    latest_ = std::move(response);
    if (!progress_ || exchange_.disconnected()) co_return;
    OutJson value = counts_json(counts());
    co_await write_line(std::move(value));
  }

  Call& call_;
  http::Exchange& exchange_;
  std::string default_corpus_;
  const bool progress_;
  std::optional<backend::UpsertStream> upsert_;
  std::string corpus_;  // that upsert_ writes to
  pb::UpsertDocumentsRequest batch_;
  size_t batch_bytes_ = 0;
  pb::UpsertDocumentsResponse latest_;  // of upsert_
  pb::UpsertDocumentsResponse closed_;  // of the calls before
};

}  // namespace

awaitable<absl::Status> handle_upload(Call& call) {
  absl::Status type = check_content_type(
      call.request(), {"application/json", "application/x-ndjson", "application/jsonl",
                       "application/x-jsonlines", "text/plain", "text/markdown", "text/html"});
  if (!type.ok()) co_return type;
  absl::StatusOr<std::string> corpus = corpus_parameter(call.request());
  if (!corpus.ok()) co_return corpus.status();
  const bool is_json = check_content_type(call.request(), {"application/json"}).ok();
  const std::optional<TextFormat> text_format = text_format_of(call.request());
  const bool progress = wants_progress(call.request());
  Upload upload(call, *std::move(corpus), progress);
  absl::Status read;
  if (is_json) {
    read = co_await upload.send_json();
  } else if (text_format) {
    read = co_await upload.send_text(*text_format);
  } else {
    read = co_await upload.send_lines();
  }
  if (call.exchange.disconnected()) co_return read;
  // Also after a bad line: what came before it is kept, and its number is told.
  absl::Status status = co_await upload.close();
  if (call.exchange.disconnected()) co_return status;
  if (status.ok()) status = std::move(read);
  const pb::UpsertDocumentsResponse counts = upload.counts();
  call.services.metrics.uploaded_documents.Increment(static_cast<double>(counts.accepted()));

  OutJson value;
  if (status.ok()) {
    value = counts_json(counts);
    if (progress) value["done"] = true;
  } else {
    status = with_suffix(status,
                         str_cat(" (", counts.accepted(), " documents before it were accepted)"));
    value["error"] = error_json(status);
    value["accepted"] = counts.accepted();
  }
  if (progress && (status.ok() || call.exchange.response_started())) {
    co_await upload.write_line(std::move(value));
    if (!call.exchange.disconnected()) co_await call.exchange.finish_stream();
    co_return absl::OkStatus();
  }
  if (status.ok()) co_return co_await respond_json(call, std::move(value));
  http::Response response = error_response(status);
  response.body = dump_json(value);
  co_await call.exchange.respond(std::move(response));
  co_return absl::OkStatus();
}

awaitable<absl::Status> handle_put_document(Call& call) {
  const std::string id = *http::find_parameter(call.request().path_values, "id");
  absl::StatusOr<std::string> corpus = corpus_parameter(call.request());
  if (!corpus.ok()) co_return corpus.status();
  absl::StatusOr<nlohmann::json> body = co_await read_json(call);
  if (!body.ok()) co_return body.status();
  if (body->is_object()) {
    const nlohmann::json& named = body->emplace("id", id).first.value();
    if (named != id) co_return invalid_field("id", "differs from the path's");
  }
  absl::StatusOr<ParsedDocument> document =
      parse_document(*body, "", call.config().max_document_bytes);
  if (!document.ok()) co_return document.status();
  std::vector<ParsedDocument> documents;
  documents.push_back(*std::move(document));
  Upload upload(call, *std::move(corpus), /*progress=*/false);
  absl::Status sent = co_await upload.send(documents);
  if (call.exchange.disconnected()) co_return sent;
  absl::Status status = co_await upload.close();
  if (status.ok()) status = std::move(sent);
  if (!status.ok()) co_return status;
  const pb::UpsertDocumentsResponse counts = upload.counts();
  OutJson value = {
      {"id", id}, {"object", "document"}, {"tokens", counts.tokens()}, {"pieces", counts.pieces()}};
  co_return co_await respond_json(call, std::move(value));
}

}  // namespace ragcache::gateway
