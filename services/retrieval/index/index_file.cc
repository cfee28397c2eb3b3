#include "services/retrieval/index/index_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "common/status.h"
#include "common/store/file.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"
#include "services/retrieval/index/faiss_calls.h"
#include "services/retrieval/index/flat_index.h"
#include "services/retrieval/index/hnsw_index.h"
#include "services/retrieval/index/ivf_index.h"

namespace ragcache::retrieval {
namespace {

using Kind = IndexOptions::Kind;

constexpr std::array<char, 8> kMagic = {'R', 'A', 'G', 'C', 'I', 'D', 'X', '\n'};
constexpr uint32_t kVersion = 3;

// As it lies in the file: little-endian, no padding.
struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t dimension;
  std::array<char, 16> kind;  // padded with zeros
  uint64_t vectors;
  uint64_t trained_bytes;  // at the payload's begin
  uint32_t is_refined;     // whether vectors lie beside their codes
  uint32_t reserved;
  uint64_t payload_bytes;
  int64_t corpus;
  uint64_t generation;
  IndexPosition position;
  Digest store_id;
  Digest embedding_model;
  Digest payload_digest;
  Digest header_digest;  // of all bytes before it
};
static_assert(sizeof(Header) == 64 + 5 * 8 + 4 * 32 && alignof(Header) == 8);
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
    if (status_.ok()) status_ = file_.append(bytes);
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

// Whether an index of the options may be of this kind now.
bool is_kind_of(std::string_view kind, Kind asked) {
  switch (asked) {
    case Kind::kExact:
      return kind == kExactKind;
    case Kind::kAuto:
    case Kind::kIvfFlat:
      return kind == kExactKind || kind == kIvfFlatKind;
    case Kind::kIvfPq:
      return kind == kExactKind || kind == kIvfPqKind;
    case Kind::kIvfSq8:
      return kind == kExactKind || kind == kIvfSq8Kind;
    case Kind::kHnsw:
      return kind == kHnswKind;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<VectorIndex>> read_index(const Header& header, std::string_view kind,
                                                        std::span<const uint8_t> payload,
                                                        const IndexOptions& options) {
  SpanReader reader(payload.subspan(header.trained_bytes));
  if (kind == kExactKind) return FlatIndex::read(reader, options.dimension);
  if (kind == kHnswKind) return HnswIndex::read(reader, options);
  RAG_ASSIGN_OR_RETURN(TrainedState trained,
                       TrainedState::parse(std::string(
                           reinterpret_cast<const char*>(payload.data()), header.trained_bytes)));
  RAG_RETURN_IF_ERROR(check_trained(trained.info, options));
  const uint32_t probes = ivf_probes(options, trained.info.lists);
  return IvfIndex::read(reader, std::move(trained), probes, options.refine_factor);
}

}  // namespace

absl::Status save_index_file(const std::string& path, const VectorIndex& index,
                             const IndexOptions& options, const IndexIdentity& identity,
                             const IndexPosition& position) {
  const auto* ivf = dynamic_cast<const IvfIndex*>(&index);
  Header header = {};
  header.magic = kMagic;
  header.version = kVersion;
  header.dimension = options.dimension;
  std::ranges::copy(index.kind(), header.kind.begin());
  header.vectors = index.size();
  header.trained_bytes = ivf != nullptr ? ivf->trained().bytes.size() : 0;
  header.is_refined = options.refine_factor > 0;
  header.corpus = identity.corpus;
  header.generation = identity.generation;
  header.position = position;
  header.store_id = identity.store_id;
  header.embedding_model = identity.embedding_model;

  RAG_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append(bytes_of(header)));
  FileWriter writer(file);
  if (ivf != nullptr) writer(ivf->trained().bytes.data(), 1, ivf->trained().bytes.size());
  const absl::Status written = index.write(writer);
  RAG_RETURN_IF_ERROR(writer.status());
  RAG_RETURN_IF_ERROR(written);
  header.payload_bytes = writer.bytes();
  header.payload_digest = writer.digest();
  header.header_digest = digest_of(header);
  RAG_RETURN_IF_ERROR(file.overwrite(0, bytes_of(header)));
  return file.commit();
}

absl::StatusOr<LoadedIndex> load_index_file(const std::string& path, const IndexOptions& options,
                                            const IndexIdentity& identity) {
  const std::string name = "index file " + path;
  RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::span<const uint8_t> bytes = file.bytes();
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(name + " is shorter than its header");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return absl::DataLossError(name + " is no index file");
  if (header.version != kVersion) {
    return absl::FailedPreconditionError(
        str_cat(name, " has version ", header.version, ", not ", kVersion));
  }
  if (header.header_digest != digest_of(header)) {
    return absl::DataLossError(name + " has a damaged header");
  }
  const std::span<const uint8_t> payload = bytes.subspan(sizeof(header));
  if (payload.size() != header.payload_bytes || header.trained_bytes > payload.size() ||
      Sha256().update(payload).finish() != header.payload_digest) {
    return absl::DataLossError(name + " is damaged: its checksum differs");
  }
  if (header.store_id != identity.store_id) {
    return absl::FailedPreconditionError(name + " belongs to another document store");
  }
  if (header.embedding_model != identity.embedding_model || header.dimension != options.dimension) {
    return absl::FailedPreconditionError(name + " was made with another embedding model");
  }
  if (header.corpus != identity.corpus || header.generation != identity.generation) {
    return absl::FailedPreconditionError(name + " is of another corpus or generation");
  }
  const std::string_view kind(header.kind.data(), strnlen(header.kind.data(), header.kind.size()));
  const bool is_refined = options.refine_factor > 0;
  if (!is_kind_of(kind, options.kind) ||
      (kind == kIvfPqKind && (header.is_refined != 0) != is_refined)) {
    return absl::FailedPreconditionError(name +
                                         " was made with another index or refine_factor option");
  }
  auto index = read_index(header, kind, payload, options);
  if (!index.ok()) {
    return absl::Status(index.status().code(), str_cat(name, ": ", index.status().message()));
  }
  if ((*index)->size() != header.vectors) {
    return absl::DataLossError(name + " does not hold what its header says");
  }
  return LoadedIndex{.index = *std::move(index), .position = header.position};
}

}  // namespace ragcache::retrieval
