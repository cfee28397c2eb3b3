#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/http_call.h"
#include "services/ragcache/ingest/document_source.h"
#include "services/ragcache/ingest/progress.h"

namespace ragcache {
namespace {

using nlohmann::json;

// Lines go up in pieces of about this size.
constexpr size_t kPieceBytes = 64 << 10;

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (is_plain) {
      out += c;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
      out += hex;
    }
  }
  return out;
}

// The server counts lines of a request, which are not those of a file.
std::string without_line(const std::string& message) {
  if (!message.starts_with("line ")) return message;
  const size_t end = message.find(": ");
  const bool is_number =
      end != std::string::npos && end > 5 && message.find_first_not_of("0123456789", 5) == end;
  return is_number ? message.substr(end + 2) : message;
}

// Sends documents to the gateway. A document that it refuses ends a request there, after those
// before it are stored; what comes after goes into another request. Documents are kept until they
// are acknowledged: as many as are on their way.
class Upload {
 public:
  Upload(const IngestCommand& command, DocumentSource source)
      : command_(command), source_(std::move(source)), progress_(source_.count_documents()) {}

  absl::Status run() {
    RAG_ASSIGN_OR_RETURN(http::Client client, http::Client::create(command_.server));
    // Only refusals are gone on behind, and each takes one document away.
    while (!ended_ || !pending_.empty() || !has_sent_) {
      RAG_RETURN_IF_ERROR(send(client));
    }
    progress_.show(stored_ + refused_, stored_, tokens_, true);
    print();
    if (!stopped_.ok()) return stopped_;
    if (refused_ > 0) {
      return absl::FailedPreconditionError(absl::StrCat(refused_, " documents were refused"));
    }
    return absl::OkStatus();
  }

 private:
  // One request with all that is pending and all that the source still has.
  absl::Status send(http::Client& client) {
    has_sent_ = true;
    n_sent_ = n_stored_ = n_tokens_ = n_pieces_ = 0;
    reply_.clear();
    error_ = nullptr;
    http::ClientRequest request;
    request.method = "POST";
    request.target = "/v1/documents";
    if (!command_.corpus.empty()) request.target += "?corpus=" + escaped(command_.corpus);
    if (!command_.api_key.empty()) {
      request.headers.add("Authorization", "Bearer " + command_.api_key);
    }
    request.headers.add("Content-Type", "application/x-ndjson");
    request.headers.add("Accept", "application/x-ndjson");
    request.body_source = [this] { return next_piece(); };
    RAG_ASSIGN_OR_RETURN(
        http::Response response,
        client.stream(request, [this](const http::Response& head, std::string_view bytes) {
          reply_ += bytes;
          return head.status < 400 ? take_lines() : absl::OkStatus();
        }));
    if (response.status >= 400) {
      const json body = json::parse(reply_, nullptr, false);
      if (!body.is_object() || (response.status != 400 && response.status != 413)) {
        response.body = std::move(reply_);
        return error_of(response);
      }
      take(body);
    } else {
      if (!reply_.empty()) reply_ += '\n';
      RAG_RETURN_IF_ERROR(take_lines());
    }
    stored_ += n_stored_;
    tokens_ += n_tokens_;
    pieces_ += n_pieces_;
    if (!error_.is_null()) return take_error();
    if (pending_.empty()) return absl::OkStatus();
    return absl::UnavailableError(
        "the server ended its answer before it had stored everything; run the command again, what "
        "is stored is skipped");
  }

  // The server's error is of the first document that it has not stored, or not of a document.
  absl::Status take_error() {
    const std::string message =
        error_.is_object() ? error_.value("message", error_.dump()) : error_.dump();
    const bool is_of_a_document =
        error_.is_object() && error_.value("type", "") == "invalid_request_error";
    if (!is_of_a_document || pending_.empty()) {
      return absl::UnavailableError(absl::StrCat("the server stopped: ", message));
    }
    const DocumentSource::Document bad = std::move(pending_.front());
    pending_.pop_front();
    refuse(absl::InvalidArgumentError(absl::StrCat(
        bad.file, bad.line > 0 ? absl::StrCat(":", bad.line) : "", ": ", without_line(message))));
    if (!command_.keep_going) pending_.clear();
    return absl::OkStatus();
  }

  void refuse(absl::Status refusal) {
    ++refused_;
    if (command_.keep_going) {
      progress_.end_line();
      std::fprintf(stderr, "refused: %s\n", std::string(refusal.message()).c_str());
    } else {
      stopped_ = std::move(refusal);
      ended_ = true;
    }
  }

  absl::StatusOr<std::string> next_piece() {
    std::string piece;
    while (piece.size() < kPieceBytes) {
      if (n_sent_ - n_stored_ == pending_.size() && !read_document()) break;
      piece += pending_[n_sent_ - n_stored_].json;
      piece += '\n';
      ++n_sent_;
    }
    return piece;
  }

  // Puts the source's next document behind the pending ones.
  bool read_document() {
    while (!ended_) {
      absl::StatusOr<std::optional<DocumentSource::Document>> next = source_.next();
      if (!next.ok()) {
        refuse(next.status());  // the request ends well: those on their way are stored
      } else if (!next->has_value()) {
        ended_ = true;
      } else {
        pending_.push_back(**std::move(next));
        return true;
      }
    }
    return false;
  }

  absl::Status take_lines() {
    for (size_t end; (end = reply_.find('\n')) != std::string::npos; reply_.erase(0, end + 1)) {
      if (end == 0) continue;
      const json message = json::parse(reply_.substr(0, end), nullptr, false);
      if (!message.is_object()) return absl::InternalError("the server's progress is not JSON");
      take(message);
    }
    return absl::OkStatus();
  }

  void take(const json& message) {
    const auto accepted = message.value("accepted", n_stored_);
    for (; n_stored_ < accepted && !pending_.empty(); ++n_stored_) pending_.pop_front();
    n_tokens_ = message.value("tokens", n_tokens_);
    n_pieces_ = message.value("pieces", n_pieces_);
    if (message.contains("error")) error_ = message["error"];
    progress_.show(stored_ + refused_ + n_sent_, stored_ + n_stored_, tokens_ + n_tokens_, false);
  }

  void print() const {
    if (command_.json) {
      const json result = {{"accepted", stored_},
                           {"tokens", tokens_},
                           {"pieces", pieces_},
                           {"refused", refused_},
                           {"done", stopped_.ok()}};
      std::printf("%s\n", result.dump().c_str());
    } else if (stopped_.ok()) {
      std::printf("%llu documents are stored and searchable\n",
                  static_cast<unsigned long long>(stored_));
    }
  }

  const IngestCommand& command_;
  DocumentSource source_;
  Progress progress_;

  std::deque<DocumentSource::Document> pending_;  // read, and not stored
  bool ended_ = false;                            // nothing more is read
  bool has_sent_ = false;
  absl::Status stopped_;  // the refusal that nothing went on behind
  uint64_t refused_ = 0;
  uint64_t stored_ = 0, tokens_ = 0, pieces_ = 0;  // by the requests before this one

  // Of this request. The first pending document is its number n_stored_.
  uint64_t n_sent_ = 0, n_stored_ = 0, n_tokens_ = 0, n_pieces_ = 0;
  std::string reply_;  // not yet taken
  json error_;
};

}  // namespace

absl::Status ingest(const IngestCommand& command) {
  DocumentSource::Options options{.paths = command.paths, .recursive = command.recursive};
  if (command.format != "auto") options.format = ingest_format_from_name(command.format);
  RAG_ASSIGN_OR_RETURN(DocumentSource source, DocumentSource::open(options));
  if (source.ignored_count() > 0) {
    std::fprintf(stderr, "%zu files of other kinds are left out\n", source.ignored_count());
  }
  if (source.file_count() == 0) {
    return absl::InvalidArgumentError(
        "there are no documents: files ending in .jsonl, .txt, .md, .html, or these and .gz; "
        "--recursive looks into folders in folders");
  }
  return Upload(command, std::move(source)).run();
}

}  // namespace ragcache
