#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/http/server.h"

namespace ragcache::fakes {

// How FakeOpenAi answers.
struct FakeStream {
  enum class End {
    kWhole,
    kHang,      // after the tokens nothing more comes
    kCut,       // after the tokens the connection closes
    kError,     // after the tokens an event with an error
    kBroken,    // after the tokens an event that is no JSON
    kStatus,    // no stream: 500 with an error
    kNoStream,  // one JSON document
  };
  uint32_t tokens = 2;
  Duration first_token{};  // after the request
  Duration token_interval{};
  End end = End::kWhole;
};

// A server of OpenAI's streamed chat and completions, without a model: tokens "t0 ", "t1 ", … at
// set times, usage at the end. Any thread.
class FakeOpenAi {
 public:
  explicit FakeOpenAi(FakeStream stream = {});
  ~FakeOpenAi();

  std::string url() const { return "http://" + server_->address(); }
  // Of answers that begin from now on.
  void set_stream(FakeStream stream);
  // Bodies of the requests that came, in order.
  std::vector<std::string> requests() const;
  // How many connections were made.
  uint64_t connections() const;
  void stop() { server_->stop(std::chrono::milliseconds(0)); }

 private:
  boost::asio::awaitable<void> answer(http::Exchange& exchange);

  mutable std::mutex mutex_;  // guards what follows
  FakeStream stream_;
  std::vector<std::string> requests_;
  uint64_t connections_ = 0;

  std::unique_ptr<http::Server> server_;  // ends first
};

}  // namespace ragcache::fakes
