#include "services/gateway/http/body.h"

#include "common/http/error.h"
#include "common/strings.h"

namespace ragcache::gateway {
namespace {

absl::Status cut_short() { return absl::InvalidArgumentError("the gzip body ends too soon"); }

}  // namespace

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
      co_return cut_short();
    }
    inflater_->feed(*bytes);
  }
}

awaitable<absl::StatusOr<std::string>> Body::read_all(size_t max_bytes, TimePoint deadline) {
  if (!encoding_.ok()) co_return encoding_;
  absl::StatusOr<std::string> whole = co_await exchange_.read_body(deadline);
  if (!whole.ok() || !inflater_) co_return whole;
  inflater_->feed(*whole);
  std::string body;
  while (true) {
    absl::StatusOr<std::string_view> piece = inflater_->next();
    if (!piece.ok()) co_return piece.status();
    if (piece->empty()) break;
    if (body.size() + piece->size() > max_bytes) {
      co_return http::error(413, str_cat("the request's body is longer than ", max_bytes,
                                         " bytes when decompressed"));
    }
    body.append(*piece);
  }
  if (!inflater_->at_end()) co_return cut_short();
  co_return body;
}

}  // namespace ragcache::gateway
