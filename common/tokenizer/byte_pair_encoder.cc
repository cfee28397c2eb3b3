#include "common/tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>

namespace ragcache {
namespace {

uint64_t key_of(TokenId left, TokenId right) { return uint64_t{left} << 32 | right; }

}  // namespace

void BytePairEncoder::add_merge(TokenId left, TokenId right, TokenId merged, uint32_t rank) {
  merges_.insert_or_assign(key_of(left, right), Merge{rank, merged});
}

void BytePairEncoder::set_whole_piece(std::string_view piece, TokenId id) {
  whole_pieces_.insert_or_assign(absl::string_view(piece.data(), piece.size()), id);
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
  merge(tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
  // One giant piece must not hold on to its memory.
  constexpr size_t kKeptCapacity = 1 << 16;
  if (tokens.capacity() > kKeptCapacity) std::vector<TokenId>().swap(tokens);
}

void BytePairEncoder::merge(std::vector<TokenId>& tokens) const {
  if (tokens.size() <= kScannedTokensMax) {
    merge_by_scan(tokens);
  } else {
    merge_by_rank(tokens);
  }
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

// One queue per rank instead of one for all pairs: within a rank positions are taken in ascending
// order, so a long text is swept from left to right. Tokens form a linked list in place; a queued
// pair that has changed since is recognised by its rank and skipped.
void BytePairEncoder::merge_by_rank(std::vector<TokenId>& tokens) const {
  struct Queue {
    std::vector<uint32_t> positions;  // of the pairs' left tokens
    size_t next = 0;                  // the first that is still to be taken
    bool sorted = true;
    bool listed = false;  // in `ranks`
  };
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::deque<Queue> queues;
  absl::flat_hash_map<uint32_t, Queue*> queue_of_rank;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks;

  const auto n = static_cast<uint32_t>(tokens.size());
  std::vector<uint32_t> previous(n);
  std::vector<uint32_t> following(n);
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    following[i] = i + 1 == n ? kNone : i + 1;
  }
  const auto offer = [&](uint32_t left) {
    if (left == kNone || following[left] == kNone) return;
    const Merge merge = find_merge(tokens[left], tokens[following[left]]);
    if (merge.rank == kNoRank) return;
    Queue*& queue = queue_of_rank[merge.rank];
    if (queue == nullptr) queue = &queues.emplace_back();
    if (!queue->listed) {
      queue->listed = true;
      ranks.push(merge.rank);
    } else if (!queue->positions.empty() && left < queue->positions.back()) {
      queue->sorted = false;
    }
    queue->positions.push_back(left);
  };
  for (uint32_t i = 0; i < n; ++i) offer(i);

  while (!ranks.empty()) {
    const uint32_t rank = ranks.top();
    Queue& queue = *queue_of_rank.find(rank)->second;
    if (queue.next == queue.positions.size()) {
      ranks.pop();
      queue = Queue();
      continue;
    }
    if (!queue.sorted) {
      std::sort(queue.positions.begin() + queue.next, queue.positions.end());
      queue.sorted = true;
    }
    const uint32_t left = queue.positions[queue.next++];
    const uint32_t right = following[left];
    if (right == kNone) continue;
    // A token that was merged away is kNoToken, which is in no pair that has a rank.
    const Merge merge = find_merge(tokens[left], tokens[right]);
    if (merge.rank != rank) continue;
    tokens[left] = merge.merged;
    tokens[right] = kNoToken;
    following[left] = following[right];
    if (following[left] != kNone) previous[following[left]] = left;
    offer(previous[left]);
    offer(left);
  }
  std::erase(tokens, kNoToken);
}

}  // namespace ragcache
