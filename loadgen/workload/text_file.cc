#include "loadgen/workload/text_file.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "common/strings.h"
#include "services/ragcache/ingest/input_file.h"

namespace ragcache::loadgen {
namespace {

absl::Status with_place(const std::string& place, const absl::Status& status) {
  return {status.code(), str_cat(place, ": ", status.message())};
}

}  // namespace

absl::StatusOr<std::string> read_text_file(const std::string& path) {
  absl::StatusOr<InputFile> file = InputFile::open(path);
  if (!file.ok()) return with_place(path, file.status());
  absl::StatusOr<std::string> text = file->read_all(kTextFileBytesMax);
  if (!text.ok()) return with_place(path, text.status());
  return text;
}

absl::StatusOr<std::string> read_text_file_or_gz(const std::string& path) {
  std::error_code error;
  const bool packed =
      !std::filesystem::exists(path, error) && std::filesystem::exists(path + ".gz", error);
  return read_text_file(packed ? path + ".gz" : path);
}

absl::StatusOr<std::vector<std::string>> files_of(const std::string& path,
                                                  std::initializer_list<std::string_view> endings) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); })) {
      files.push_back(entry.path().string());
    }
  }
  if (error) return absl::InvalidArgumentError(str_cat(path, ": ", error.message()));
  if (files.empty()) {
    return absl::InvalidArgumentError(str_cat(path, ": has no file of ", *endings.begin()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> file_of(const std::string& path,
                                    std::initializer_list<std::string_view> endings) {
  RAG_ASSIGN_OR_RETURN(const std::vector<std::string> files, files_of(path, endings));
  if (files.size() > 1) {
    return absl::InvalidArgumentError(
        str_cat(path, ": has ", files.size(), " files of ", *endings.begin(), ", name one"));
  }
  return files.front();
}

absl::Status for_each_line(const std::string& path, const std::string& text,
                           const std::function<absl::Status(std::string_view line)>& take) {
  uint64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const absl::Status status = take(line);
    if (!status.ok()) return with_place(str_cat(path, ":", number), status);
  }
  return absl::OkStatus();
}

absl::Status for_each_json_line(
    const std::string& path, const std::string& text,
    const std::function<absl::Status(const nlohmann::json& object)>& take) {
  return for_each_line(path, text, [&](std::string_view line) -> absl::Status {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    return object.is_object() ? take(object) : absl::InvalidArgumentError("is no JSON object");
  });
}

absl::StatusOr<std::vector<std::vector<std::string>>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> fields;
  std::string field;
  bool quoted = false;
  auto end_field = [&] { fields.push_back(std::exchange(field, {})); };
  auto end_record = [&] {
    if (fields.empty() && field.empty()) return;  // a blank line
    end_field();
    records.push_back(std::exchange(fields, {}));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"' && field.empty()) {
      quoted = true;
    } else if (c == ',') {
      end_field();
    } else if (c == '\n') {
      end_record();
    } else if (c != '\r') {
      field += c;
    }
  }
  if (quoted) return absl::InvalidArgumentError("ends inside a quoted field");
  end_record();
  return records;
}

}  // namespace ragcache::loadgen
