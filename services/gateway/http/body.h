#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/http/exchange.h"
#include "common/http/inflate.h"

namespace ragcache::gateway {

// A request's body with its Content-Encoding (gzip or none) undone. On the exchange's strand.
class Body {
 public:
  explicit Body(http::Exchange& exchange);

  // The next bytes as they come, empty at the end. The view lives until the next call.
  boost::asio::awaitable<absl::StatusOr<std::string_view>> read_chunk();
  // All of it; 413 if it is longer. What else may be wrong: Exchange::read_body.
  boost::asio::awaitable<absl::StatusOr<std::string>> read_all(size_t max_bytes,
                                                               TimePoint deadline);

 private:
  http::Exchange& exchange_;
  absl::Status encoding_;
  std::optional<http::Inflater> inflater_;
};

}  // namespace ragcache::gateway
