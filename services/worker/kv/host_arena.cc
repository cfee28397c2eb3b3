#include "services/worker/kv/host_arena.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/status.h"
#include "services/worker/kv/block_pool.h"

namespace ragcache::worker {
namespace {

constexpr char kMagic[16] = "ragcache-arena\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kPage = 4096;
constexpr int32_t kEndOfChain = -1;
// States of an entry. Memory that was never written is free.
constexpr uint32_t kFree = 0, kWriting = 1, kCommitted = 2;

uint64_t round_to_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string error_text() { return std::generic_category().message(errno); }

uint64_t mib(uint64_t bytes) { return bytes >> 20; }

template <class T>
std::span<const uint8_t> bytes_of(const T& value, size_t size) {
  return {reinterpret_cast<const uint8_t*>(&value), size};
}

}  // namespace

uint64_t checksum_of(std::span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct HostArena::Header {
  char magic[16];
  uint32_t version;
  uint32_t block_tokens;
  Digest model_fingerprint;
  int64_t n_layers;
  int64_t n_kv_heads;
  int64_t head_dim;
  uint32_t kv_type;
  uint32_t blocks;
  uint64_t checksum;  // of all before it

  uint64_t expected_checksum() const {
    return checksum_of(bytes_of(*this, offsetof(Header, checksum)));
  }
};

struct HostArena::DirectoryEntry {
  SegmentId id;
  SegmentId parent;  // zeros: none
  Digest token_digest;
  uint32_t depth;
  uint32_t token_count;
  uint32_t n_blocks;
  uint32_t state;
  uint64_t checksum;  // of the fields before state, and of the blocks' numbers
  uint64_t unused[5];

  std::atomic_ref<uint32_t> mark() { return std::atomic_ref<uint32_t>(state); }
};

namespace {

// Where the parts of the file begin.
struct Offsets {
  uint64_t directory, chain, checksums, blocks, end;

  Offsets(const kernels::KvLayout& layout, uint64_t n_blocks, uint64_t entry_bytes) {
    directory = kPage;
    chain = round_to_pages(directory + n_blocks * entry_bytes);
    checksums = round_to_pages(chain + n_blocks * sizeof(int32_t));
    blocks = round_to_pages(checksums +
                            n_blocks * static_cast<uint64_t>(layout.n_layers) * sizeof(uint64_t));
    end = blocks + n_blocks * static_cast<uint64_t>(layout.block_bytes());
  }
};

}  // namespace

uint64_t HostArena::file_bytes(const kernels::KvLayout& layout, uint32_t blocks) {
  static_assert(sizeof(DirectoryEntry) == 128 && sizeof(Header) <= kPage);
  return Offsets(layout, blocks, sizeof(DirectoryEntry)).end;
}

absl::StatusOr<HostArena> HostArena::open(const std::string& path, const Digest& model_fingerprint,
                                          const kernels::KvLayout& layout, uint32_t blocks) {
  if (blocks == 0 || blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("host_memory_mib gives ", blocks, " blocks"));
  }
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("host_arena ", path, " cannot be opened: ", error_text()));
  }
  HostArena arena(path, descriptor, layout, blocks);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(
        absl::StrCat("host_arena ", path, " is in use by another worker: give each its own"));
  }
  Header header{.version = kVersion,
                .block_tokens = kernels::KvLayout::kBlockTokens,
                .model_fingerprint = model_fingerprint,
                .n_layers = layout.n_layers,
                .n_kv_heads = layout.n_kv_heads,
                .head_dim = layout.head_dim,
                .kv_type = static_cast<uint32_t>(layout.type),
                .blocks = blocks};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.checksum = header.expected_checksum();

  if (const std::string reason = arena.check(header); reason.empty()) {
    RAG_RETURN_IF_ERROR(arena.map());
    arena.recover();
  } else {
    if (reason != "new") {
      log::warn("the host arena is made anew", {{"host_arena", path}, {"reason", reason}});
    }
    RAG_RETURN_IF_ERROR(arena.make(header));
  }
  return arena;
}

HostArena::HostArena(std::string path, int descriptor, const kernels::KvLayout& layout,
                     uint32_t blocks)
    : path_(std::move(path)), descriptor_(descriptor), layout_(layout), blocks_(blocks) {}

HostArena::HostArena(HostArena&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      layout_(other.layout_),
      blocks_(other.blocks_),
      memory_(std::exchange(other.memory_, nullptr)),
      recovered_(std::move(other.recovered_)),
      skipped_(other.skipped_) {}

HostArena::~HostArena() {
  if (memory_ != nullptr) munmap(memory_, file_bytes(layout_, blocks_));
  if (descriptor_ >= 0) close(descriptor_);
}

std::string HostArena::check(const Header& expected) const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0) return error_text();
  if (status.st_size == 0) return "new";
  Header found;
  if (pread(descriptor_, &found, sizeof found, 0) != static_cast<ssize_t>(sizeof found)) {
    return "its header is cut off";
  }
  if (std::memcmp(found.magic, kMagic, sizeof kMagic) != 0) return "it is not an arena";
  if (found.version != kVersion) {
    return absl::StrCat("it has version ", found.version, ", this is ", kVersion);
  }
  if (found.checksum != found.expected_checksum()) return "its header is damaged";
  if (found.model_fingerprint != expected.model_fingerprint) return "it is another model's";
  if (found.n_layers != expected.n_layers || found.n_kv_heads != expected.n_kv_heads ||
      found.head_dim != expected.head_dim || found.kv_type != expected.kv_type ||
      found.block_tokens != expected.block_tokens) {
    return "its blocks are laid out otherwise";
  }
  if (found.blocks != expected.blocks) {
    return absl::StrCat("it has ", found.blocks, " blocks, ", expected.blocks, " are wanted");
  }
  const uint64_t bytes = file_bytes(layout_, blocks_);
  if (static_cast<uint64_t>(status.st_size) != bytes) {
    return absl::StrCat("it has ", status.st_size, " bytes instead of ", bytes);
  }
  return "";
}

absl::Status HostArena::make(const Header& header) {
  // What is left of another arena goes before room is asked for; new memory reads as zeros, so
  // every entry is free.
  if (ftruncate(descriptor_, 0) != 0) {
    return absl::UnavailableError(absl::StrCat("host_arena ", path_, ": ", error_text()));
  }
  RAG_RETURN_IF_ERROR(map());
  std::memcpy(memory_, &header, sizeof header);
  return absl::OkStatus();
}

absl::Status HostArena::map() {
  const uint64_t bytes = file_bytes(layout_, blocks_);
  struct stat file;
  struct statvfs file_system;
  if (fstat(descriptor_, &file) != 0 || fstatvfs(descriptor_, &file_system) != 0) {
    return absl::UnavailableError(absl::StrCat("host_arena ", path_, ": ", error_text()));
  }
  // Room that is not there would be a SIGBUS at some later write. It is counted before it is taken:
  // where a file system cannot reserve, taking it is writing to all of it.
  const uint64_t room = static_cast<uint64_t>(file.st_blocks) * 512 +
                        uint64_t{file_system.f_bavail} * file_system.f_frsize;
  const int error =
      bytes > room ? ENOSPC : posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    (void)!ftruncate(descriptor_, 0);
    return absl::ResourceExhaustedError(absl::StrCat(
        "host_memory_mib wants ", mib(bytes), " MiB in ", path_, ", which has room for ", mib(room),
        " MiB (", std::generic_category().message(error),
        "): lower it, or set host_arena to a file with room"));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("host_arena ", path_, " of ", mib(bytes),
                                                     " MiB is not mapped: ", error_text()));
  }
  memory_ = static_cast<uint8_t*>(memory);
  return absl::OkStatus();
}

void HostArena::recover() {
  std::map<SegmentId, Entry> whole;
  std::vector<uint32_t> owners(blocks_, 0);
  for (int32_t first = 0; first < static_cast<int32_t>(blocks_); ++first) {
    DirectoryEntry& entry = directory(first);
    if (entry.state == kFree) continue;
    const auto skip = [&] {
      entry.state = kFree;
      ++skipped_;
    };
    if (entry.state != kCommitted || entry.n_blocks == 0 || entry.n_blocks > blocks_ ||
        entry.n_blocks != blocks_of(entry.token_count)) {
      skip();
      continue;
    }
    Entry found{.key = {.id = entry.id,
                        .depth = entry.depth,
                        .token_count = entry.token_count,
                        .token_digest = entry.token_digest}};
    if (entry.depth > 0) found.key.parent = entry.parent;
    int32_t block = first;
    while (block >= 0 && static_cast<uint32_t>(block) < blocks_ &&
           found.blocks.size() < entry.n_blocks) {
      found.blocks.push_back(block);
      block = next(block);
    }
    if (block != kEndOfChain || found.blocks.size() != entry.n_blocks ||
        entry.checksum != checksum(entry, found.blocks) || whole.contains(entry.id)) {
      skip();
      continue;
    }
    for (const int32_t owned : found.blocks) ++owners[owned];
    whole.emplace(found.key.id, std::move(found));
  }

  std::vector<Entry*> by_depth;
  for (auto& [id, entry] : whole) by_depth.push_back(&entry);
  std::stable_sort(by_depth.begin(), by_depth.end(),
                   [](const Entry* a, const Entry* b) { return a->key.depth < b->key.depth; });
  std::map<SegmentId, uint32_t> kept;  // their depths
  for (Entry* entry : by_depth) {
    const bool alone = std::all_of(entry->blocks.begin(), entry->blocks.end(),
                                   [&](int32_t block) { return owners[block] == 1; });
    bool rooted = !entry->key.parent.has_value();
    if (!rooted) {
      const auto parent = kept.find(*entry->key.parent);
      rooted = parent != kept.end() && parent->second + 1 == entry->key.depth;
    }
    if (!alone || !rooted) {
      directory(entry->blocks.front()).state = kFree;
      ++skipped_;
      continue;
    }
    kept.emplace(entry->key.id, entry->key.depth);
    recovered_.push_back(std::move(*entry));
  }
  log::info("the host arena is taken over",
            {{"host_arena", path_}, {"segments", recovered_.size()}, {"skipped", skipped_}});
}

uint8_t* HostArena::block(int32_t block) const {
  RAG_CHECK(block >= 0 && static_cast<uint32_t>(block) < blocks_);
  return memory_ + Offsets(layout_, blocks_, sizeof(DirectoryEntry)).blocks +
         static_cast<uint64_t>(block) * static_cast<uint64_t>(layout_.block_bytes());
}

std::span<uint64_t> HostArena::checksums(int32_t block) const {
  RAG_CHECK(block >= 0 && static_cast<uint32_t>(block) < blocks_);
  auto* all = reinterpret_cast<uint64_t*>(
      memory_ + Offsets(layout_, blocks_, sizeof(DirectoryEntry)).checksums);
  return {all + block * layout_.n_layers, static_cast<size_t>(layout_.n_layers)};
}

HostArena::DirectoryEntry& HostArena::directory(int32_t block) const {
  RAG_CHECK(block >= 0 && static_cast<uint32_t>(block) < blocks_);
  return reinterpret_cast<DirectoryEntry*>(memory_ + kPage)[block];
}

int32_t& HostArena::next(int32_t block) const {
  RAG_CHECK(block >= 0 && static_cast<uint32_t>(block) < blocks_);
  return reinterpret_cast<int32_t*>(memory_ +
                                    Offsets(layout_, blocks_, sizeof(DirectoryEntry)).chain)[block];
}

uint64_t HostArena::checksum(const DirectoryEntry& entry, std::span<const int32_t> blocks) const {
  return XXH3_64bits_withSeed(blocks.data(), blocks.size_bytes(),
                              checksum_of(bytes_of(entry, offsetof(DirectoryEntry, state))));
}

void HostArena::begin(const Entry& entry) {
  RAG_CHECK(!entry.blocks.empty());
  DirectoryEntry& to = directory(entry.blocks.front());
  to.mark().store(kWriting);
  to.id = entry.key.id;
  to.parent = entry.key.parent.value_or(SegmentId{});
  to.token_digest = entry.key.token_digest;
  to.depth = entry.key.depth;
  to.token_count = entry.key.token_count;
  to.n_blocks = static_cast<uint32_t>(entry.blocks.size());
  to.checksum = checksum(to, entry.blocks);
  for (size_t i = 0; i < entry.blocks.size(); ++i) {
    next(entry.blocks[i]) = i + 1 < entry.blocks.size() ? entry.blocks[i + 1] : kEndOfChain;
  }
}

void HostArena::commit(const Entry& entry) {
  directory(entry.blocks.front()).mark().store(kCommitted);
}

void HostArena::erase(const Entry& entry) {
  // In this order for a process that dies between them: what is written to the blocks after this
  // must not be seen before it.
  directory(entry.blocks.front()).mark().store(kFree);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool HostArena::has(const Entry& entry) const {
  DirectoryEntry& there = directory(entry.blocks.front());
  return there.mark().load() == kCommitted && there.id == entry.key.id;
}

}  // namespace ragcache::worker
