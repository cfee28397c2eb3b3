#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/hash.h"

// What the document store holds. A document belongs to one corpus and has an id there. It is kept
// as pieces, each with a vector of its own: one piece if it is short enough, else several.
namespace ragcache::retrieval {

// Names one version of a piece's vector. Grows with every stored version, over all corpora, and is
// never used again, so that an index entry never stands for another text than the one it was made
// from.
using VectorId = int64_t;

// Names a corpus, and is never used again: a corpus deleted and made anew is another one.
using CorpusNumber = int64_t;

// The corpus that always exists.
inline constexpr std::string_view kDefaultCorpus = "default";

// Who shares the KV of a corpus' documents; the numbers are stored.
enum class CacheScope { kTenant = 1, kShared = 2 };

// How a document is cut. Lengths are in prompt tokens of the language model.
struct ChunkOptions {
  uint32_t max_tokens = 0;      // of a piece; 0 keeps documents whole
  uint32_t overlap_tokens = 0;  // that a piece may repeat of the one before
};

struct CorpusSettings {
  CacheScope cache_scope = CacheScope::kTenant;
  // Not set: as the service does by default.
  std::optional<uint32_t> chunk_tokens;
  std::optional<uint32_t> chunk_overlap_tokens;

  bool operator==(const CorpusSettings&) const = default;
};

struct CorpusRecord {
  CorpusNumber number = 0;
  std::string name;
  CorpusSettings settings;
  uint64_t documents = 0;
  uint64_t pieces = 0;
};

// What a client gives. `metadata` is a JSON object in the form that filter/ makes of it; empty if
// there is none.
struct DocumentText {
  std::string id;
  std::string title;
  std::string text;
  std::string metadata;
};

// SHA-256 over the title's length (64-bit little-endian), the title and the text.
Digest content_digest(std::string_view title, std::string_view text);

// Part of a document on its way into the store.
struct Piece {
  std::string text;
  uint32_t overlap_bytes = 0;  // how many bytes of it repeat the end of the piece before
  std::vector<uint32_t> segment_tokens;
  Digest token_digest = {};
};

// A piece as it is found.
struct DocumentRecord {
  std::string id;         // the document's own if that is one piece, else piece_id() of it
  std::string source_id;  // the document's if it has several pieces, else empty
  std::string title;
  std::string text;
  std::string metadata;
  Digest content_digest = {};  // of title and text as they are here
  std::vector<uint32_t> segment_tokens;
  Digest token_digest = {};
};

struct DocumentSummary {
  std::string id;
  std::string title;
  std::string metadata;
  Digest content_digest = {};  // of the whole document
};

// The id of a document's n-th piece, from 1: "guide.md#3".
std::string piece_id(std::string_view document_id, uint32_t number);

struct PieceName {
  std::string document_id;
  uint32_t number = 0;
};
// What piece_id() made `id` of, if it could have. Documents do not have such ids.
std::optional<PieceName> parse_piece_id(std::string_view id);

// Where a document's pieces lie. The placement depends on the document's id alone, so that all its
// pieces, in every version, are on one shard.
using Placement = uint64_t;
Placement placement_of(std::string_view document_id);
// REQUIRES: n_shards > 0.
inline uint32_t shard_of(Placement placement, uint32_t n_shards) {
  return static_cast<uint32_t>(placement % n_shards);
}

// A committed change of a corpus' set of vectors.
struct VectorChange {
  uint64_t sequence = 0;
  VectorId vector = 0;
  Placement placement = 0;
  bool removed = false;
  std::vector<float> embedding;  // [dimension] if added, empty if removed
};

// How far a reader of the log has come.
struct LogPosition {
  uint64_t sequence = 0;
  uint64_t origin = 0;  // `end` of its first page, the one read from sequence 0
};

// Which part of a corpus a reader follows.
struct LogPart {
  uint32_t shard = 0;
  uint32_t shards = 1;
};

// The next changes of a log. A reader that has come to `upto` equals the corpus as it was then if
// `upto` is not before the `end` of any page that it has read, as pages leave out what was removed
// until they were read.
struct ChangePage {
  std::vector<VectorChange> changes;  // ascending
  uint64_t upto = 0;
  uint64_t end = 0;  // of the log
};

}  // namespace ragcache::retrieval
