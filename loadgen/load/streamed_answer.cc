#include "loadgen/load/streamed_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/http/message.h"
#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

constexpr uint32_t kHeaderBytesMax = 64 << 10;
constexpr size_t kErrorBytesMax = 4 << 10;

// The message of an error in OpenAI's shape, else the body as it is.
std::string message_of(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) {
    const auto& error = json["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>();
    }
    return error.is_string() ? error.get<std::string>() : error.dump();
  }
  return body.substr(0, 200);
}

}  // namespace

StreamedAnswer::StreamedAnswer(Outcome& outcome)
    : answer_(outcome),
      events_([this](const http::SseEvent& event) { return answer_.take(event.data, now_); }) {
  eager(true);
  header_limit(kHeaderBytesMax);
  body_limit(boost::none);
}

bool StreamedAnswer::is_stream() const {
  constexpr std::string_view kType = http::kSseContentType;
  return status_ == 200 && content_type_.size() >= kType.size() &&
         http::equals_ignore_case(std::string_view(content_type_).substr(0, kType.size()), kType);
}

size_t StreamedAnswer::take(string_view body) {
  if (!is_stream()) {
    body_.append(body.data(), std::min(body.size(), kErrorBytesMax - body_.size()));
  } else if (error_.empty()) {
    const absl::Status status = events_.feed(std::string_view(body.data(), body.size()));
    if (absl::IsResourceExhausted(status)) {
      error_ = str_cat("malformed: ", status.message());
    } else {
      error_ = std::string(status.message());
    }
  }
  return body.size();
}

std::string StreamedAnswer::final_error() const {
  if (!error_.empty() || done()) return error_;
  if (status_ != 200) return str_cat("status ", status_, ": ", message_of(body_));
  if (!is_stream()) {
    return str_cat("malformed: the answer is ", content_type_.empty() ? "untyped" : content_type_,
                   ", not ", http::kSseContentType);
  }
  return "closed: the stream ended without [DONE]";
}

}  // namespace ragcache::loadgen
