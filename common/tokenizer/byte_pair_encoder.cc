#include "common/tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace ragcache {
namespace {

uint64_t key_of(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

}  // namespace

void BytePairEncoder::add_merge(TokenId left, TokenId right, TokenId merged) {
  merges_.insert_or_assign(key_of(left, right), Merge{n_merges_++, merged});
}

void BytePairEncoder::add_whole_piece(std::string_view piece, TokenId id) {
  std::vector<TokenId> tokens;
  encode(piece, tokens);
  if (tokens == std::vector<TokenId>{id}) {
    whole_pieces_.emplace(absl::string_view(piece.data(), piece.size()), id);
  }
}

BytePairEncoder::Merge BytePairEncoder::find_merge(TokenId left, TokenId right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? Merge{kNoRank, kNoToken} : found->second;
}

void BytePairEncoder::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const auto whole = whole_pieces_.find(absl::string_view(piece.data(), piece.size()));
  if (whole != whole_pieces_.end()) {
    out.push_back(whole->second);
    return;
  }
  thread_local std::vector<TokenId> tokens;
  tokens.clear();
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id != kNoToken) tokens.push_back(id);
  }
  if (tokens.size() <= kScannedTokensMax) {
    merge_by_scan(tokens);
  } else {
    merge_by_queue(tokens);
  }
  out.insert(out.end(), tokens.begin(), tokens.end());
  // One giant piece must not hold on to its memory.
  constexpr size_t kKeptCapacity = 1 << 16;
  if (tokens.capacity() > kKeptCapacity) std::vector<TokenId>().swap(tokens);
}

void BytePairEncoder::merge_by_scan(std::vector<TokenId>& tokens) const {
  if (tokens.size() < 2) return;
  // merges[i] joins tokens i and i + 1.
  std::array<Merge, kScannedTokensMax> merges;
  size_t n = tokens.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = find_merge(tokens[i], tokens[i + 1]);
  while (n > 1) {
    const auto best =
        std::min_element(merges.begin(), merges.begin() + (n - 1),
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const size_t at = best - merges.begin();
    tokens[at] = best->merged;
    std::copy(tokens.begin() + at + 2, tokens.begin() + n, tokens.begin() + at + 1);
    std::copy(merges.begin() + at + 1, merges.begin() + (n - 1), merges.begin() + at);
    --n;
    if (at > 0) merges[at - 1] = find_merge(tokens[at - 1], tokens[at]);
    if (at + 1 < n) merges[at] = find_merge(tokens[at], tokens[at + 1]);
  }
  tokens.resize(n);
}

// O(n log n): every merge leaves at most two new pairs in the queue. Tokens form a linked list in
// place; a queued pair that has changed since is recognised by its ids and skipped.
void BytePairEncoder::merge_by_queue(std::vector<TokenId>& tokens) const {
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    TokenId left;
    TokenId right;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  };
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  const auto n = static_cast<uint32_t>(tokens.size());
  std::vector<uint32_t> previous(n);
  std::vector<uint32_t> following(n);
  std::vector<Candidate> initial;
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    following[i] = i + 1 == n ? kNone : i + 1;
    if (i + 1 == n) break;
    const Merge merge = find_merge(tokens[i], tokens[i + 1]);
    if (merge.rank != kNoRank) initial.push_back({merge.rank, i, tokens[i], tokens[i + 1]});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later,
                                                                                std::move(initial));
  const auto offer = [&](uint32_t left, uint32_t right) {
    if (left == kNone || right == kNone) return;
    const Merge merge = find_merge(tokens[left], tokens[right]);
    if (merge.rank != kNoRank) queue.push({merge.rank, left, tokens[left], tokens[right]});
  };

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    // A token that was merged away holds kNoToken, which no candidate has.
    const uint32_t left = best.position;
    if (tokens[left] != best.left) continue;
    const uint32_t right = following[left];
    if (right == kNone || tokens[right] != best.right) continue;
    tokens[left] = find_merge(best.left, best.right).merged;
    tokens[right] = kNoToken;
    following[left] = following[right];
    if (following[left] != kNone) previous[following[left]] = left;
    offer(previous[left], left);
    offer(left, following[left]);
  }
  std::erase(tokens, kNoToken);
}

}  // namespace ragcache
