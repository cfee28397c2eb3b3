#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "loadgen/workload/recording.h"
#include "loadgen/workload/text_file.h"

namespace ragcache::loadgen {
namespace {

constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// "2023-11-16 18:15:46.6805900", later traces with "+00:00" behind. Seconds since 1970.
absl::StatusOr<double> seconds_of(std::string_view text) {
  constexpr size_t kSecondsAt = 17;
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  int year = 0;
  unsigned month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  if (text.size() < kSecondsAt + 2 || text[4] != '-' || text[7] != '-' || text[10] != ' ' ||
      text[13] != ':' || text[16] != ':' || !parse(text.substr(0, 4), year) ||
      !parse(text.substr(5, 2), month) || !parse(text.substr(8, 2), day) ||
      !parse(text.substr(11, 2), hour) || !parse(text.substr(14, 2), minute) ||
      !parse(text.substr(kSecondsAt), second) || hour > 23 || minute > 59 ||
      !(second >= 0 && second < 61)) {
    return absl::InvalidArgumentError("TIMESTAMP: must be like 2023-11-16 18:15:46.68");
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok()) return absl::InvalidArgumentError("TIMESTAMP: has no such day");
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
}

absl::StatusOr<uint32_t> tokens_of(std::string_view text, const char* field, uint32_t min) {
  uint32_t tokens = 0;
  if (!parse(text, tokens) || tokens < min || tokens > RecordedRequest::kTokensMax) {
    return absl::InvalidArgumentError(
        str_cat(field, ": must be an integer from ", min, " to ", RecordedRequest::kTokensMax));
  }
  return tokens;
}

absl::StatusOr<RecordedRequest> request_of(std::string_view line, size_t number) {
  const size_t first = line.find(',');
  const size_t second = line.rfind(',');
  if (first == second || line.find(',', first + 1) != second) {
    return absl::InvalidArgumentError(str_cat("must have the fields ", kHeader));
  }
  RecordedRequest request;
  RAG_ASSIGN_OR_RETURN(request.time_s, seconds_of(line.substr(0, first)));
  RAG_ASSIGN_OR_RETURN(const uint32_t context,
                       tokens_of(line.substr(first + 1, second - first - 1), "ContextTokens", 1));
  RAG_ASSIGN_OR_RETURN(request.output_tokens,
                       tokens_of(line.substr(second + 1), "GeneratedTokens", 0));
  request.question.push_back({str_cat(number), context});
  return request;
}

}  // namespace

absl::StatusOr<std::vector<RecordedRequest>> read_azure(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(const std::string file, file_of(path, {".csv", ".csv.gz"}));
  RAG_ASSIGN_OR_RETURN(const std::string text, read_text_file(file));
  std::vector<RecordedRequest> requests;
  bool header = true;
  RAG_RETURN_IF_ERROR(for_each_line(file, text, [&](std::string_view line) -> absl::Status {
    if (std::exchange(header, false)) {
      if (line == kHeader) return absl::OkStatus();
      return absl::InvalidArgumentError(str_cat("must be ", kHeader));
    }
    RAG_ASSIGN_OR_RETURN(RecordedRequest request, request_of(line, requests.size()));
    requests.push_back(std::move(request));
    return absl::OkStatus();
  }));
  return requests;
}

}  // namespace ragcache::loadgen
