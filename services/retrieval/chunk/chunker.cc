#include "services/retrieval/chunk/chunker.h"

#include <algorithm>

#include "common/check.h"
#include "services/retrieval/chunk/sentences.h"

namespace ragcache::retrieval {
namespace {

// No more bytes than this are encoded to fill one token of a piece. Text that has more bytes a
// token than this over a whole piece is cut shorter than it could be.
constexpr size_t kBytesPerTokenMax = 8;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool begins_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

// Where to cut text[0, end): after a space if there is one in the second half, else between two
// characters; behind `end` only if the first character ends there. At least 1.
// REQUIRES: 0 < end <= text.size().
size_t cut_place(std::string_view text, size_t end) {
  if (end == text.size()) return end;
  for (size_t place = end; place > end / 2; --place) {
    if (is_space(text[place - 1])) return place;
  }
  constexpr size_t kCharacterBytesMax = 4;
  for (size_t place = end; place > 0 && end - place < kCharacterBytesMax; --place) {
    if (begins_character(text[place])) return place;
  }
  for (size_t place = end; place < text.size() && place < kCharacterBytesMax; ++place) {
    if (begins_character(text[place])) return place;
  }
  return end;  // no UTF-8
}

}  // namespace

// The end of a prefix of `text` that has at most `max_tokens` tokens, if not even one character has
// more.
size_t Chunker::prefix_end(std::string_view text, size_t max_tokens) const {
  size_t end = cut_place(text, std::min(text.size(), max_tokens * kBytesPerTokenMax));
  std::vector<TokenId> tokens = format_->tokenizer().encode(text.substr(0, end));
  while (tokens.size() > max_tokens) {
    size_t bytes = 0;
    for (size_t i = 0; i < max_tokens; ++i) {
      bytes += format_->tokenizer().token_bytes(tokens[i]).size();
    }
    // Cut there, the text may have other tokens.
    const size_t place = cut_place(text, std::clamp<size_t>(bytes, 1, end - 1));
    if (place >= end) break;
    end = place;
    tokens = format_->tokenizer().encode(text.substr(0, end));
  }
  return end;
}

std::vector<Chunker::Unit> Chunker::units_of(std::string_view text, size_t max_tokens) const {
  std::vector<Unit> units;
  size_t begin = 0;
  for (const size_t end : sentence_ends(text)) {
    bool is_sentence = true;
    while (begin < end) {
      const std::string_view rest = text.substr(begin, end - begin);
      Unit unit{.begin = begin, .end = end};
      const bool may_fit = rest.size() <= max_tokens * kBytesPerTokenMax;
      if (may_fit) unit.tokens = count(rest);
      if (!may_fit || unit.tokens > max_tokens) {
        is_sentence = false;
        unit.end = begin + prefix_end(rest, max_tokens);
        unit.tokens = count(text.substr(begin, unit.end - begin));
      }
      unit.is_sentence = is_sentence;
      units.push_back(unit);
      begin = unit.end;
    }
  }
  return units;
}

Piece Chunker::piece_of(std::string_view title, std::string_view text) const {
  Piece piece{.text = std::string(text)};
  piece.segment_tokens = format_->document(title, text);
  piece.token_digest = digest_of_tokens(piece.segment_tokens);
  return piece;
}

std::vector<Piece> Chunker::cut(std::string_view title, std::string_view text,
                                const ChunkOptions& options) const {
  if (options.max_tokens == 0) return {piece_of(title, text)};
  RAG_CHECK(options.max_tokens >= kMinTokens);
  const size_t title_tokens = format_->document(title, "").size();
  const size_t room = options.max_tokens - std::min<size_t>(title_tokens, options.max_tokens / 2);
  const size_t limit = title_tokens + room;  // of a segment
  if (text.size() <= limit * kBytesPerTokenMax) {
    Piece whole = piece_of(title, text);
    if (whole.segment_tokens.size() <= limit) return {std::move(whole)};
  }

  std::vector<Unit> units = units_of(text, room);
  size_t total = 0;
  for (const Unit& unit : units) total += unit.tokens;
  const size_t overlap_max = std::min<size_t>(options.overlap_tokens, room / 2);
  const size_t n_pieces = 1 + total / (room - overlap_max);
  const size_t even_share = 1 + total / n_pieces;

  std::vector<Piece> pieces;
  size_t previous = 0;  // the first unit that the last piece did not repeat
  for (size_t begin = 0; begin < units.size();) {
    // Units [first, begin) are repeated, [begin, end) are new.
    size_t first = begin;
    size_t repeated = 0;
    while (first > previous + 1 && units[first - 1].is_sentence &&
           repeated + units[first - 1].tokens <= overlap_max) {
      repeated += units[--first].tokens;
    }
    // Together sentences may have more tokens than one by one.
    while (first < begin &&
           count(text.substr(units[first].begin, units[begin].begin - units[first].begin)) >
               overlap_max) {
      repeated -= units[first++].tokens;
    }
    size_t end = begin;
    size_t added = 0;
    while (end < units.size() &&
           (end == begin || (added < even_share && repeated + added + units[end].tokens <= room))) {
      added += units[end++].tokens;
    }
    while (first < begin && repeated + added > room) repeated -= units[first++].tokens;

    const auto piece_text = [&] {
      return text.substr(units[first].begin, units[end - 1].end - units[first].begin);
    };
    Piece piece = piece_of(title, piece_text());
    // Tokens of a whole may be more than those of its parts, by a few.
    while (piece.segment_tokens.size() > limit) {
      Unit& last = units[end - 1];
      if (first < begin) {
        ++first;
      } else if (end > begin + 1) {
        --end;
      } else {
        const size_t excess = piece.segment_tokens.size() - limit;
        const size_t kept = prefix_end(text.substr(last.begin, last.end - last.begin),
                                       last.tokens > excess ? last.tokens - excess : 1);
        if (last.begin + kept == last.end) break;  // one character
        Unit rest{.begin = last.begin + kept, .end = last.end};
        rest.tokens = count(text.substr(rest.begin, rest.end - rest.begin));
        last.end = rest.begin;
        last.tokens = count(text.substr(last.begin, kept));
        last.is_sentence = false;
        units.insert(units.begin() + static_cast<ptrdiff_t>(end), rest);
      }
      piece = piece_of(title, piece_text());
    }
    piece.overlap_bytes = static_cast<uint32_t>(units[begin].begin - units[first].begin);
    pieces.push_back(std::move(piece));
    previous = begin;
    begin = end;
  }
  return pieces;
}

}  // namespace ragcache::retrieval
