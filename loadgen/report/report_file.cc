#include "loadgen/report/report_file.h"

#include <cstdio>
#include <filesystem>

#include "common/status.h"
#include "common/store/file.h"

namespace ragcache::loadgen {

absl::Status write_report(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return absl::OkStatus();
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty()) RAG_RETURN_IF_ERROR(make_writable_folder(folder));
  RAG_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file.commit();
}

}  // namespace ragcache::loadgen
