#include "loadgen/load/answer_reader.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "common/strings.h"

namespace ragcache::loadgen {
namespace {

using nlohmann::json;

template <typename T>
struct Field {
  std::string_view path;
  T Outcome::*member;
};
constexpr Field<uint32_t> kCounts[] = {
    {"/usage/prompt_tokens", &Outcome::prompt_tokens},
    {"/usage/completion_tokens", &Outcome::completion_tokens},
};
constexpr Field<std::optional<uint32_t>> kCachedCounts[] = {
    {"/usage/prompt_tokens_details/cached_tokens", &Outcome::cached_tokens},
    {"/usage/prompt_tokens_details/cached_documents", &Outcome::cached_documents},
    {"/timings/cache_n", &Outcome::cached_tokens},  // llama.cpp's server
};
constexpr Field<std::optional<double>> kTimes[] = {
    {"/timings/search_ms", &Outcome::search_ms},
    {"/timings/queue_ms", &Outcome::queue_ms},
    {"/timings/scheduling_us", &Outcome::scheduling_us},
};

// Takes from a chunk, while it is parsed, what an outcome has. No tree of the chunk is built: with
// tens of thousands of chunks a second that would be most of the generator's work. The members
// below are what json::sax_parse calls.
class ChunkHandler {
 public:
  explicit ChunkHandler(Outcome& outcome) : outcome_(outcome) {}

  bool has_token() const { return has_token_; }
  bool is_object() const { return is_object_; }
  const std::string& error() const { return error_; }

  bool key(std::string& name) {
    path_.resize(lengths_.back());
    path_ += '/';
    path_ += name;
    return true;
  }
  bool start_object(size_t) {
    if (lengths_.empty()) is_object_ = true;
    lengths_.push_back(path_.size());
    // An error need not have a message.
    if (path_ == "/error" && error_.empty()) error_ = "no message";
    return true;
  }
  bool end_object() {
    path_.resize(lengths_.back());
    lengths_.pop_back();
    return true;
  }
  bool start_array(size_t) { return true; }
  bool end_array() { return true; }

  bool string(std::string& value) {
    if (path_ == "/choices/delta/content" || path_ == "/choices/text") {
      outcome_.text += value;
      has_token_ = has_token_ || !value.empty();
    } else if (path_ == "/choices/finish_reason") {
      has_token_ = true;
    } else if (path_ == "/documents/id") {
      outcome_.documents.push_back(std::move(value));
    } else if (path_ == "/error" || path_ == "/error/message") {
      error_ = value.empty() ? "no message" : std::move(value);
    }
    return true;
  }
  bool number_integer(int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return number(value); }
  bool boolean(bool) { return true; }
  bool null() { return true; }
  bool binary(json::binary_t&) { return true; }
  bool parse_error(size_t, const std::string&, const json::exception&) { return false; }

 private:
  bool number(double value) {
    const auto count =
        static_cast<uint32_t>(std::clamp(value, 0.0, static_cast<double>(UINT32_MAX)));
    put(kCounts, count);
    put(kCachedCounts, count);
    put(kTimes, value);
    return true;
  }

  void put(const auto& fields, auto value) {
    for (const auto& field : fields) {
      if (path_ == field.path) outcome_.*field.member = value;
    }
  }

  Outcome& outcome_;
  std::string path_;             // names from the top, each behind a '/'; arrays add nothing
  std::vector<size_t> lengths_;  // of the path at each object that is open
  bool is_object_ = false;
  bool has_token_ = false;
  std::string error_;
};

}  // namespace

absl::Status AnswerReader::take(const std::string& data, Duration now) {
  if (data == "[DONE]") {
    done_ = true;
    outcome_.end = now;
    return absl::OkStatus();
  }
  ChunkHandler chunk(outcome_);
  if (!json::sax_parse(data, &chunk) || !chunk.is_object()) {
    return absl::DataLossError(
        str_cat("malformed: a chunk is no JSON object: ", data.substr(0, 100)));
  }
  if (!chunk.error().empty()) return absl::UnknownError(str_cat("server: ", chunk.error()));
  if (chunk.has_token() && !outcome_.first_token) outcome_.first_token = now;
  return absl::OkStatus();
}

}  // namespace ragcache::loadgen
