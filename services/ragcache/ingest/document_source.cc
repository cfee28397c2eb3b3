#include "services/ragcache/ingest/document_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/text/text.h"

namespace ragcache {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCountBufferBytes = 64 << 10;

std::string without_gz(const std::string& name) {
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

std::optional<IngestFormat> format_of(const std::string& path) {
  const std::string name = without_gz(path);
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return IngestFormat::kJsonLines;
  const std::optional<TextFormat> format = text_format_of_name(name);
  if (!format.has_value()) return std::nullopt;
  if (*format == TextFormat::kMarkdown) return IngestFormat::kMarkdown;
  return *format == TextFormat::kHtml ? IngestFormat::kHtml : IngestFormat::kText;
}

TextFormat text_format(IngestFormat format) {
  if (format == IngestFormat::kMarkdown) return TextFormat::kMarkdown;
  return format == IngestFormat::kHtml ? TextFormat::kHtml : TextFormat::kPlain;
}

absl::Status refuse(const std::string& file, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", status.message()));
}

}  // namespace

std::optional<IngestFormat> ingest_format_from_name(std::string_view name) {
  if (name == "jsonl") return IngestFormat::kJsonLines;
  if (name == "txt") return IngestFormat::kText;
  if (name == "md") return IngestFormat::kMarkdown;
  if (name == "html") return IngestFormat::kHtml;
  return std::nullopt;
}

absl::StatusOr<DocumentSource> DocumentSource::open(const Options& options) {
  DocumentSource source;
  for (const std::string& path : options.paths) {
    std::error_code error;
    if (path == "-") {
      if (options.format.value_or(IngestFormat::kJsonLines) != IngestFormat::kJsonLines) {
        return absl::InvalidArgumentError("standard input is read as jsonl only");
      }
      source.files_.push_back({.path = "-"});
    } else if (fs::is_directory(path, error)) {
      RAG_RETURN_IF_ERROR(source.add_folder(path, options));
    } else if (!fs::exists(path, error)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": there is no such file or folder"));
    } else {
      const std::string name = fs::path(path).filename().string();
      RAG_RETURN_IF_ERROR(source.add_file(path, name, options, /*is_named=*/true));
    }
  }
  return source;
}

absl::Status DocumentSource::add_file(const std::string& path, std::string id,
                                      const Options& options, bool is_named) {
  const std::optional<IngestFormat> known = format_of(path);
  // In a folder, a format chosen by hand is that of the files which could be documents at all.
  if (!known.has_value() && !(is_named && options.format.has_value())) {
    if (!is_named) {
      ++ignored_count_;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": cannot tell its format by the name; say --format jsonl, txt, md or html"));
  }
  const IngestFormat format = options.format.has_value() ? *options.format : *known;
  files_.push_back({.path = path, .id = std::move(id), .format = format});
  return absl::OkStatus();
}

absl::Status DocumentSource::add_folder(const std::string& path, const Options& options) {
  std::error_code error;
  std::vector<std::string> found;
  const auto take = [&](const fs::directory_entry& entry) {
    std::error_code unreadable;
    if (entry.is_regular_file(unreadable)) found.push_back(entry.path().string());
  };
  if (options.recursive) {
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
         at.increment(error)) {
      take(*at);
    }
  } else {
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      take(*at);
    }
  }
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  std::ranges::sort(found);
  for (const std::string& file : found) {
    const std::string id = fs::path(file).lexically_relative(path).generic_string();
    RAG_RETURN_IF_ERROR(add_file(file, id, options, /*is_named=*/false));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DocumentSource::Document>> DocumentSource::next() {
  while (input_.has_value() || next_file_ < files_.size()) {
    if (!input_.has_value()) {
      const File& file = files_[next_file_++];
      if (file.format != IngestFormat::kJsonLines) return read_file(file);
      absl::StatusOr<InputFile> input = InputFile::open(file.path);
      if (!input.ok()) return refuse(file.path, input.status());
      input_.emplace(*std::move(input));
      pending_.clear();
      pending_at_ = 0;
      input_ended_ = false;
      line_ = 0;
    }
    const std::string& path = files_[next_file_ - 1].path;
    absl::StatusOr<std::optional<std::string>> line = next_line();
    if (!line.ok()) {
      input_.reset();
      return refuse(absl::StrCat(path, ":", line_ + 1), line.status());
    }
    if (!line->has_value()) {
      input_.reset();
    } else if (!trimmed(**line).empty()) {
      return Document{.json = **std::move(line), .file = path, .line = line_};
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::string>> DocumentSource::next_line() {
  size_t searched = pending_at_;
  while (true) {
    const size_t end = pending_.find('\n', searched);
    if (end != std::string::npos || (input_ended_ && pending_at_ < pending_.size())) {
      std::string line = pending_.substr(pending_at_, std::min(end, pending_.size()) - pending_at_);
      pending_at_ = std::min(end, pending_.size() - 1) + 1;
      ++line_;
      return line;
    }
    if (input_ended_) return std::nullopt;
    pending_.erase(0, pending_at_);
    pending_at_ = 0;
    searched = pending_.size();
    if (pending_.size() > kLineBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the line is longer than ", kLineBytesMax, " bytes"));
    }
    RAG_ASSIGN_OR_RETURN(const std::string_view bytes, input_->read());
    input_ended_ = bytes.empty();
    pending_ += bytes;
  }
}

absl::StatusOr<std::optional<DocumentSource::Document>> DocumentSource::read_file(
    const File& file) {
  absl::StatusOr<InputFile> input = InputFile::open(file.path);
  if (!input.ok()) return refuse(file.path, input.status());
  const absl::StatusOr<std::string> bytes = input->read_all(kFileBytesMax);
  if (!bytes.ok()) return refuse(file.path, bytes.status());
  const absl::StatusOr<TitledText> read = read_text(text_format(file.format), *bytes);
  if (!read.ok()) return refuse(file.path, read.status());
  if (read->text.empty()) {
    return refuse(file.path, absl::InvalidArgumentError("has no text"));
  }
  const std::string name = fs::path(without_gz(file.id)).stem().string();
  nlohmann::json document = {
      {"id", file.id}, {"title", read->title.empty() ? name : read->title}, {"text", read->text}};
  // A name that is no UTF-8 is the server's to refuse.
  return Document{.json = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                  .file = file.path};
}

uint64_t DocumentSource::count_documents() const {
  uint64_t documents = 0;
  std::string buffer(kCountBufferBytes, '\0');
  for (const File& file : files_) {
    if (file.format != IngestFormat::kJsonLines) {
      ++documents;
      continue;
    }
    if (file.path == "-" || file.path.ends_with(".gz")) return 0;
    absl::StatusOr<InputFile> input = InputFile::open(file.path);
    bool in_line = false;
    while (input.ok()) {
      const absl::StatusOr<std::string_view> bytes = input->read();
      if (!bytes.ok() || bytes->empty()) break;
      for (const char c : *bytes) {
        if (c == '\n') {
          in_line = false;
        } else if (!in_line && c != ' ' && c != '\r' && c != '\t') {
          in_line = true;
          ++documents;
        }
      }
    }
  }
  return documents;
}

}  // namespace ragcache
