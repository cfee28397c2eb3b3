#include "services/retrieval/index/index_file.h"

#include <faiss/impl/io.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"
#include "common/store/file.h"
#include "common/weights/mapped_file.h"

namespace ragcache::retrieval {
namespace {

constexpr std::array<char, 8> kMagic = {'R', 'A', 'G', 'C', 'I', 'D', 'X', '\n'};
constexpr uint32_t kVersion = 1;

// As it lies in the file: little-endian, no padding.
struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t dimension;
  std::array<char, 16> kind;  // padded with zeros
  uint64_t vectors;
  int64_t last_vector;  // greatest id; 0 if there is none
  uint64_t trained_on;
  uint32_t lists;
  uint32_t reserved;
  Digest store_id;
  Digest embedding_model;
  uint64_t payload_bytes;
  Digest payload_digest;
  Digest header_digest;  // of all bytes before it
};
static_assert(sizeof(Header) == 64 + 2 * 32 + 8 + 2 * 32 && alignof(Header) == 8);
static_assert(std::is_trivially_copyable_v<Header>);

std::span<const uint8_t> bytes_of(const Header& header) {
  return {reinterpret_cast<const uint8_t*>(&header), sizeof(header)};
}

Digest digest_of(const Header& header) {
  return Sha256().update(bytes_of(header).first(offsetof(Header, header_digest))).finish();
}

// Hashes on the way. Faiss reports a short write by throwing, so the first error waits here.
class FileWriter : public faiss::IOWriter {
 public:
  explicit FileWriter(AtomicFile& file) : file_(file) {}

  size_t operator()(const void* data, size_t size, size_t count) override {
    const std::span bytes(static_cast<const uint8_t*>(data), size * count);
    status_ = file_.append(bytes);
    if (!status_.ok()) return 0;
    hash_.update(bytes);
    bytes_ += bytes.size();
    return count;
  }

  const absl::Status& status() const { return status_; }
  uint64_t bytes() const { return bytes_; }
  Digest digest() { return hash_.finish(); }

 private:
  AtomicFile& file_;
  absl::Status status_;
  Sha256 hash_;
  uint64_t bytes_ = 0;
};

class SpanReader : public faiss::IOReader {
 public:
  explicit SpanReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t operator()(void* data, size_t size, size_t count) override {
    if (size == 0) return 0;
    const size_t items = std::min(count, bytes_.size() / size);
    if (items > 0) std::memcpy(data, bytes_.data(), items * size);
    bytes_ = bytes_.subspan(items * size);
    return items;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace

absl::Status save_index_file(const std::string& path, const FaissIndex& index, uint32_t dimension,
                             uint64_t trained_on, const IndexIdentity& identity) {
  const std::vector<int64_t> ids = index.ids();
  Header header = {};
  header.magic = kMagic;
  header.version = kVersion;
  header.dimension = dimension;
  std::ranges::copy(index.kind(), header.kind.begin());
  header.vectors = ids.size();
  header.last_vector = ids.empty() ? 0 : ids.back();
  header.trained_on = trained_on;
  header.lists = index.lists();
  header.store_id = identity.store_id;
  header.embedding_model = identity.embedding_model;

  RAG_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append(bytes_of(header)));
  FileWriter writer(file);
  const absl::Status written = index.write(writer);
  RAG_RETURN_IF_ERROR(writer.status());
  RAG_RETURN_IF_ERROR(written);
  header.payload_bytes = writer.bytes();
  header.payload_digest = writer.digest();
  header.header_digest = digest_of(header);
  RAG_RETURN_IF_ERROR(file.overwrite(0, bytes_of(header)));
  return file.commit();
}

absl::StatusOr<LoadedIndex> load_index_file(const std::string& path, uint32_t dimension,
                                            const IndexIdentity& identity,
                                            const std::function<uint32_t(uint32_t)>& probes_of) {
  const std::string name = absl::StrCat("index file ", path);
  RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::span<const uint8_t> bytes = file.bytes();
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(absl::StrCat(name, " is shorter than its header"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return absl::DataLossError(absl::StrCat(name, " is no index file"));
  if (header.version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has version ", header.version, ", not ", kVersion));
  }
  if (header.header_digest != digest_of(header)) {
    return absl::DataLossError(absl::StrCat(name, " has a damaged header"));
  }
  const std::span<const uint8_t> payload = bytes.subspan(sizeof(header));
  if (payload.size() != header.payload_bytes ||
      Sha256().update(payload).finish() != header.payload_digest) {
    return absl::DataLossError(absl::StrCat(name, " is damaged: its checksum differs"));
  }
  if (header.store_id != identity.store_id) {
    return absl::FailedPreconditionError(absl::StrCat(name, " belongs to another document store"));
  }
  if (header.embedding_model != identity.embedding_model || header.dimension != dimension) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " was made with another embedding model"));
  }
  const std::string_view kind(header.kind.data(), strnlen(header.kind.data(), header.kind.size()));
  SpanReader reader(payload);
  RAG_ASSIGN_OR_RETURN(std::unique_ptr<FaissIndex> index,
                       FaissIndex::read(reader, kind, dimension, probes_of(header.lists)));
  if (index->size() != header.vectors || index->lists() != header.lists) {
    return absl::DataLossError(absl::StrCat(name, " does not hold what its header says"));
  }
  return LoadedIndex{.index = std::move(index), .trained_on = header.trained_on};
}

}  // namespace ragcache::retrieval
