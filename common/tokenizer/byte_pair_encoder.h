#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/tokenizer/tokenizer.h"

namespace ragcache {

// Byte-pair merging: the pair of adjacent tokens with the lowest rank becomes one token (the
// leftmost of equals first), until no pair has a rank. Immutable once filled, so any thread may
// encode.
class BytePairEncoder {
 public:
  static constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

  // The token of a single byte; bytes without one are left out of what encode() gives.
  void set_byte(uint8_t byte, TokenId id) { byte_ids_[byte] = id; }
  // The last call for a pair counts.
  void add_merge(TokenId left, TokenId right, TokenId merged, uint32_t rank);
  // Makes encode() answer `piece` with this one token, whatever merging would give. `piece` must
  // outlive the encoder.
  void set_whole_piece(std::string_view piece, TokenId id);

  // Appends the tokens of `piece`, which are made from its bytes.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;
  // Merges tokens in place. O(n log n).
  void merge(std::vector<TokenId>& tokens) const;

 private:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };

  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  // Up to here a scan for the lowest rank beats queues.
  static constexpr size_t kScannedTokensMax = 48;

  Merge find_merge(TokenId left, TokenId right) const;
  void merge_by_scan(std::vector<TokenId>& tokens) const;
  void merge_by_rank(std::vector<TokenId>& tokens) const;

  // Constant once filled.
  std::array<TokenId, 256> byte_ids_ = [] {
    std::array<TokenId, 256> ids;
    ids.fill(kNoToken);
    return ids;
  }();
  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_map<absl::string_view, TokenId> whole_pieces_;
};

}  // namespace ragcache
