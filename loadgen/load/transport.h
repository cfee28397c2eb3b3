#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "loadgen/load/load.h"

namespace ragcache::loadgen {

inline constexpr Duration kConnectTimeout = std::chrono::seconds(10);

// How requests reach a server. Owner: run_load(); all calls come from its loop's thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // Puts every request into its final form, so that none of that is done while time is measured,
  // and looks whether the server answers. REQUIRED: nothing runs on the loop.
  virtual absl::Status prepare(const std::vector<Request>& requests) = 0;

  // Sends the request of that place. Fills `outcome` (all but `at`), then calls `done` on the loop,
  // and never before send() has returned.
  virtual void send(size_t index, TimePoint start, Outcome& outcome,
                    std::function<void()> done) = 0;

  // Ends whatever is under way: each with this error, soon.
  virtual void abort(const std::string& error) = 0;
};

absl::StatusOr<std::unique_ptr<Transport>> make_http_transport(boost::asio::io_context& loop,
                                                               const EndpointOptions& endpoint,
                                                               Duration timeout);
absl::StatusOr<std::unique_ptr<Transport>> make_grpc_transport(boost::asio::io_context& loop,
                                                               const EndpointOptions& endpoint,
                                                               Duration timeout);

// The error of a request that took longer than this.
std::string timeout_error(Duration timeout);

}  // namespace ragcache::loadgen
