#include "services/gateway/http/body.h"

#include "common/http/error.h"
#include "common/strings.h"

namespace ragcache::gateway {

using boost::asio::awaitable;

Body::Body(http::Exchange& exchange) : exchange_(exchange) {
  const std::string* encoding = exchange.request().headers.find("content-encoding");
  if (encoding == nullptr || http::equals_ignore_case(*encoding, "identity")) return;
  if (http::equals_ignore_case(*encoding, "gzip")) {
    inflater_.emplace();
  } else {
    encoding_ = http::error(415, str_cat("Content-Encoding: must be gzip or identity, not `",
                                         encoding->substr(0, 100), "`"));
  }
}

awaitable<absl::StatusOr<std::string_view>> Body::read_chunk() {
  if (!encoding_.ok()) co_return encoding_;
  while (true) {
    if (inflater_) {
      absl::StatusOr<std::string_view> piece = inflater_->next();
      if (!piece.ok() || !piece->empty()) co_return piece;
    }
    absl::StatusOr<std::string_view> bytes = co_await exchange_.read_chunk();
    if (!bytes.ok() || !inflater_) co_return bytes;
    if (bytes->empty()) {
      if (inflater_->at_end()) co_return bytes;
      co_return absl::InvalidArgumentError("the gzip body ends too soon");
    }
    inflater_->feed(*bytes);
  }
}

awaitable<absl::StatusOr<std::string>> Body::read_all(size_t max_bytes) {
  if (encoding_.ok() && !inflater_) {
    absl::StatusOr<std::string> whole = co_await exchange_.read_body();
    co_return whole;
  }
  std::string body;
  while (true) {
    absl::StatusOr<std::string_view> chunk = co_await read_chunk();
    if (!chunk.ok()) co_return chunk.status();
    if (chunk->empty()) co_return body;
    if (body.size() + chunk->size() > max_bytes) {
      co_return http::error(413, str_cat("the request's body is longer than ", max_bytes,
                                         " bytes when decompressed"));
    }
    body.append(*chunk);
  }
}

}  // namespace ragcache::gateway
