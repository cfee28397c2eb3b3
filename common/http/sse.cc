#include "common/http/sse.h"

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {

std::string sse_event(std::string_view data) {
  RAG_CHECK(data.find_first_of("\r\n") == std::string_view::npos);
  return str_cat("data: ", data, "\n\n");
}

absl::Status SseParser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    if (after_carriage_return_) {
      after_carriage_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + event_.data.size() + piece.size() > kMaxEventBytes) {
      return absl::ResourceExhaustedError(
          str_cat("a server-sent event is longer than ", kMaxEventBytes, " bytes"));
    }
    line_.append(piece);
    if (end == std::string_view::npos) break;
    after_carriage_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    RAG_RETURN_IF_ERROR(end_line());
  }
  return absl::OkStatus();
}

absl::Status SseParser::end_line() {
  std::string line = std::move(line_);
  line_.clear();
  std::string_view text = line;
  if (at_start_ && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  at_start_ = false;
  if (text.empty()) {
    SseEvent event = std::move(event_);
    event_ = {};
    if (!std::exchange(has_data_, false)) return absl::OkStatus();
    if (event.type.empty()) event.type = "message";
    return on_event_(event);
  }
  const size_t colon = text.find(':');
  const std::string_view field = text.substr(0, colon);
  std::string_view value =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    event_.data += str_cat(has_data_ ? "\n" : "", value);
    has_data_ = true;
  } else if (field == "event") {
    event_.type = value;
  }
  return absl::OkStatus();
}

}  // namespace ragcache::http
