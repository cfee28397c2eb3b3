#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status.h"
#include "services/ragcache/commands.h"
#include "services/ragcache/http_call.h"

namespace ragcache {
namespace {

using nlohmann::json;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

constexpr size_t kPieceBytes = 64 << 10;

absl::StatusOr<File> open_file(const std::string& path) {
  if (path == "-") return File(stdin, [](std::FILE*) { return 0; });
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return file;
}

// Lines that hold something; nothing for standard input, which can be read only once.
absl::StatusOr<uint64_t> count_documents(const std::vector<std::string>& paths) {
  uint64_t documents = 0;
  std::string piece(kPieceBytes, '\0');
  for (const std::string& path : paths) {
    if (path == "-") return 0;
    RAG_ASSIGN_OR_RETURN(const File file, open_file(path));
    bool in_line = false;
    while (size_t read = std::fread(piece.data(), 1, piece.size(), file.get())) {
      for (size_t i = 0; i < read; ++i) {
        if (piece[i] == '\n') {
          in_line = false;
        } else if (!in_line && piece[i] != ' ' && piece[i] != '\r') {
          in_line = true;
          ++documents;
        }
      }
    }
    if (std::ferror(file.get())) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
    }
  }
  return documents;
}

// A bar on a terminal, a line every few seconds elsewhere.
class Progress {
 public:
  explicit Progress(uint64_t total) : total_(total), terminal_(isatty(STDERR_FILENO)) {}

  void show(uint64_t accepted, uint64_t tokens, bool last) {
    const TimePoint now = steady_now();
    const Duration pause =
        terminal_ ? Duration(std::chrono::milliseconds(100)) : Duration(std::chrono::seconds(5));
    if (!last && now - shown_ < pause) return;
    shown_ = now;
    const double seconds = std::max(1e-3, to_seconds(now - start_));
    const double rate = static_cast<double>(tokens) / seconds;
    if (total_ == 0) {
      std::fprintf(stderr, "%s%llu documents, %.0f tokens/s", terminal_ ? "\r" : "",
                   static_cast<unsigned long long>(accepted), rate);
    } else {
      constexpr int kWidth = 30;
      const double share = static_cast<double>(accepted) / static_cast<double>(total_);
      const int filled = std::min(kWidth, static_cast<int>(share * kWidth));
      const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                              std::string(static_cast<size_t>(kWidth - filled), '.');
      std::fprintf(stderr, "%s[%s] %llu of %llu documents, %.0f tokens/s, %.0f s",
                   terminal_ ? "\r" : "", bar.c_str(), static_cast<unsigned long long>(accepted),
                   static_cast<unsigned long long>(total_), rate, seconds);
    }
    if (!terminal_ || last) std::fprintf(stderr, "\n");
  }

 private:
  const uint64_t total_;
  const bool terminal_;
  const TimePoint start_ = steady_now();
  TimePoint shown_ = start_;
};

}  // namespace

absl::Status ingest(const IngestCommand& command) {
  RAG_ASSIGN_OR_RETURN(const uint64_t total, count_documents(command.files));
  Progress progress(total);

  // The body: every file, one after another, each ending its last line.
  size_t next = 0;
  File file(nullptr, &std::fclose);
  char last_byte = '\n';
  absl::Status read_error;
  http::ClientRequest request;
  request.method = "POST";
  request.target = "/v1/documents";
  if (!command.corpus.empty()) {
    request.target += "?corpus=" + http::percent_encode(command.corpus);
  }
  if (!command.api_key.empty()) {
    request.headers.add("Authorization", "Bearer " + command.api_key);
  }
  request.headers.add("Content-Type", "application/x-ndjson");
  request.headers.add("Accept", "application/x-ndjson");
  request.body_source = [&]() -> absl::StatusOr<std::string> {
    std::string piece(kPieceBytes, '\0');
    for (;;) {
      if (file == nullptr) {
        if (next == command.files.size()) return "";
        RAG_ASSIGN_OR_RETURN(file, open_file(command.files[next++]));
      }
      piece.resize(std::fread(piece.data(), 1, kPieceBytes, file.get()));
      if (!piece.empty()) {
        last_byte = piece.back();
        return piece;
      }
      if (std::ferror(file.get())) {
        return absl::InvalidArgumentError(
            absl::StrCat(command.files[next - 1], ": ", std::strerror(errno)));
      }
      file.reset();
      if (last_byte != '\n') {
        last_byte = '\n';
        return "\n";
      }
    }
  };

  std::string lines;
  json last = json::object();
  auto take_line = [&](const std::string& line) -> absl::Status {
    if (line.empty()) return absl::OkStatus();
    json message = json::parse(line, nullptr, false);
    if (!message.is_object()) return absl::InternalError("the server's progress is not JSON");
    if (message.contains("error")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the server refused a document: ",
          message["error"].is_object() ? message["error"].value("message", message["error"].dump())
                                       : message["error"].dump()));
    }
    last = std::move(message);
    progress.show(last.value("accepted", uint64_t{0}), last.value("tokens", uint64_t{0}), false);
    return absl::OkStatus();
  };
  RAG_ASSIGN_OR_RETURN(auto client, http::Client::create(command.server));
  RAG_ASSIGN_OR_RETURN(auto response, client.stream(request, [&](const http::Response& head,
                                                                 std::string_view bytes) {
    lines += bytes;
    if (head.status >= 400) return absl::OkStatus();
    for (size_t end; (end = lines.find('\n')) != std::string::npos;) {
      RAG_RETURN_IF_ERROR(take_line(lines.substr(0, end)));
      lines.erase(0, end + 1);
    }
    return absl::OkStatus();
  }));
  if (response.status >= 400) {
    response.body = std::move(lines);
    return error_of(response);
  }
  RAG_RETURN_IF_ERROR(take_line(lines));
  const auto accepted = last.value("accepted", uint64_t{0});
  progress.show(accepted, last.value("tokens", uint64_t{0}), true);
  if (command.json) {
    std::printf("%s\n", last.dump().c_str());
  } else {
    std::printf("%llu documents are stored and searchable\n",
                static_cast<unsigned long long>(accepted));
  }
  return absl::OkStatus();
}

}  // namespace ragcache
