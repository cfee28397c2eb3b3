#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

// Server-sent events (HTML standard, section 9.2).
namespace ragcache::http {

inline constexpr std::string_view kSseContentType = "text/event-stream";

// One event with `data`, in the form OpenAI sends: "data: …\n\n". REQUIRED: no line break in data.
std::string sse_event(std::string_view data);

struct SseEvent {
  std::string type;  // "message" if the stream names none
  std::string data;
};

// Cuts a stream into events; bytes may come in pieces of any size. One stream per object.
class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 16 << 20;

  // A non-OK Status of `on_event` stops the parser and is returned.
  explicit SseParser(std::function<absl::Status(const SseEvent&)> on_event)
      : on_event_(std::move(on_event)) {}

  absl::Status feed(std::string_view bytes);

 private:
  absl::Status end_line();

  std::function<absl::Status(const SseEvent&)> on_event_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool after_carriage_return_ = false;
  bool at_start_ = true;
};

}  // namespace ragcache::http
