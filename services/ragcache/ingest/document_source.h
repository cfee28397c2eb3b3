#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/ragcache/ingest/input_file.h"

namespace ragcache {

enum class IngestFormat { kJsonLines, kText, kMarkdown, kHtml };

// The documents of files and folders, one after another: the lines of .jsonl files as they are, one
// document for each .txt, .md and .html file, all of them also with .gz behind. One thread.
//
// The document of a file has for its id the file's path below the folder that was named (of a file
// that was named itself, its name), and for its title that of the text, else the file's name.
class DocumentSource {
 public:
  static constexpr size_t kFileBytesMax = 64 << 20;
  static constexpr size_t kLineBytesMax = 16 << 20;

  struct Options {
    std::vector<std::string> paths;      // "-" is standard input
    bool recursive = false;              // folders in folders too
    std::optional<IngestFormat> format;  // none: by the ending of each name
  };

  struct Document {
    std::string json;  // one line, without its end
    std::string file;
    uint64_t line = 0;  // of the file, from 1; 0 if the document is the whole file
  };

  // Lists the files. INVALID_ARGUMENT names a path that is not there, or a file that was named
  // itself and whose format cannot be told.
  static absl::StatusOr<DocumentSource> open(const Options& options);

  // The next document; none at the end. An error names file and line; the next call goes on behind
  // what it refused.
  absl::StatusOr<std::optional<Document>> next();

  size_t file_count() const { return files_.size(); }
  // Files of other kinds in the folders.
  size_t ignored_count() const { return ignored_count_; }
  // Documents, by a look into the files; 0 if that cannot be told without inflating some, or from
  // standard input.
  uint64_t count_documents() const;

 private:
  struct File {
    std::string path;
    std::string id;
    IngestFormat format = IngestFormat::kJsonLines;
  };

  absl::Status add_file(const std::string& path, std::string id, const Options& options,
                        bool is_named);
  absl::Status add_folder(const std::string& path, const Options& options);
  absl::StatusOr<std::optional<Document>> read_file(const File& file);
  absl::StatusOr<std::optional<std::string>> next_line();

  std::vector<File> files_;
  size_t ignored_count_ = 0;

  size_t next_file_ = 0;
  // Of the .jsonl file that is being read:
  std::optional<InputFile> input_;
  std::string pending_;  // read, not yet a line
  size_t pending_at_ = 0;
  bool input_ended_ = false;
  uint64_t line_ = 0;
};

// jsonl, txt, md or html.
std::optional<IngestFormat> ingest_format_from_name(std::string_view name);

}  // namespace ragcache
