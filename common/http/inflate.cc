#include "common/http/inflate.h"

#include <zlib.h>

#include <array>

#include "common/check.h"

namespace ragcache::http {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr int kGzipOnly = 16;  // added to the window's bits: no zlib or raw streams

}  // namespace

struct Inflater::State {
  State() { RAG_CHECK(inflateInit2(&stream, MAX_WBITS + kGzipOnly) == Z_OK); }
  ~State() { inflateEnd(&stream); }

  z_stream stream{};
  std::array<char, kPieceBytes> piece;
  bool started = false;  // inside a member
  bool any = false;      // some member was whole
};

Inflater::Inflater() : state_(std::make_unique<State>()) {}
Inflater::~Inflater() = default;
Inflater::Inflater(Inflater&&) noexcept = default;

void Inflater::feed(std::string_view bytes) {
  RAG_CHECK(state_->stream.avail_in == 0);
  state_->stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state_->stream.avail_in = static_cast<uInt>(bytes.size());
}

absl::StatusOr<std::string_view> Inflater::next() {
  State& state = *state_;
  z_stream& stream = state.stream;
  stream.next_out = reinterpret_cast<Bytef*>(state.piece.data());
  stream.avail_out = kPieceBytes;
  while (stream.avail_out > 0) {
    if (stream.avail_in > 0) state.started = true;
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      state.started = false;
      state.any = true;
      if (stream.avail_in == 0) break;
      inflateReset(&stream);
    } else if (result == Z_BUF_ERROR || (result == Z_OK && stream.avail_in == 0)) {
      if (stream.avail_out > 0) break;
    } else if (result != Z_OK) {
      return absl::InvalidArgumentError("the body is not valid gzip");
    }
  }
  return std::string_view(state.piece.data(), kPieceBytes - stream.avail_out);
}

bool Inflater::at_end() const { return state_->any && !state_->started; }

}  // namespace ragcache::http
