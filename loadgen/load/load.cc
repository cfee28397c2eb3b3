#include "loadgen/load/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <numeric>
#include <utility>

#include "common/file_limit.h"
#include "common/status.h"
#include "common/strings.h"
#include "loadgen/load/transport.h"

namespace ragcache::loadgen {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kProgressEvery{1};
constexpr uint32_t kInFlightMax = 1 << 20;
constexpr double kTimeoutMaxS = 86'400;
// Descriptors of the process besides the connections.
constexpr size_t kOtherFiles = 256;

// While alive, this thread goes before others where the system lets it (CAP_SYS_NICE): it works
// little, and a server that takes every core would make it late.
class Precedence {
 public:
  Precedence() : before_(getpriority(PRIO_PROCESS, 0)) { setpriority(PRIO_PROCESS, 0, kNice); }
  ~Precedence() { setpriority(PRIO_PROCESS, 0, before_); }
  Precedence(const Precedence&) = delete;
  Precedence& operator=(const Precedence&) = delete;

 private:
  static constexpr int kNice = -10;
  const int before_;  // Linux keeps it for each thread
};

// One load. Lives on the loop.
//
// A client that waits for an answer before it sends the next request stops asking whenever the
// server stalls, and so never sees what the requests of that time would have met: "coordinated
// omission" (G. Tene, How NOT to Measure Latency, 2013; wrk2's README). Here each request is sent
// at its scheduled time, and its latency counts from there. What the generator itself sends late by
// is `sent` - `at`, and told beside the results. How late it sees an answer is not: that takes
// longer where many come at once (loadgen_load_bench).
class Load {
 public:
  Load(asio::io_context& loop, Transport& transport, const std::vector<Request>& requests,
       const LoadOptions& options)
      : loop_(loop),
        transport_(transport),
        requests_(requests),
        options_(options),
        next_send_(loop),
        next_progress_(loop),
        signals_(loop, SIGINT, SIGTERM) {}

  LoadResult run() {
    result_.outcomes.resize(requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      result_.outcomes[i].at = requests_[i].at;
      result_.outcomes[i].error = "not sent: the load had ended";
    }
    signals_.async_wait([this](const error_code& code, int signal) {
      if (!code) {
        stop(absl::CancelledError(signal == SIGINT ? "ended by SIGINT" : "ended by SIGTERM"));
      }
    });
    start_ = steady_now();
    asio::co_spawn(loop_, send_all(), asio::detached);
    asio::co_spawn(loop_, show_progress(), asio::detached);
    loop_.run();
    if (options_.on_progress) options_.on_progress(sent_, ended_, failed_);
    return std::move(result_);
  }

 private:
  asio::awaitable<void> send_all() {
    std::vector<size_t> order(requests_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return requests_[a].at < requests_[b].at; });
    for (const size_t index : order) {
      const TimePoint at = start_ + requests_[index].at;
      if (at > steady_now()) {
        error_code code;
        next_send_.expires_at(at);
        co_await next_send_.async_wait(asio::redirect_error(asio::use_awaitable, code));
      } else {
        // Late: answers that have come meanwhile are not to wait for all that is due.
        co_await asio::post(loop_, asio::use_awaitable);
      }
      if (stopped_) break;
      send(index);
    }
    sending_ = false;
    finish_if_idle();
  }

  void send(size_t index) {
    Outcome& outcome = result_.outcomes[index];
    if (in_flight_ >= options_.max_in_flight) {
      outcome.error = str_cat("not sent: ", in_flight_, " requests were in flight");
      ++failed_;
      return;
    }
    outcome.error.clear();
    ++in_flight_;
    ++sent_;
    transport_.send(index, start_, outcome, [this, &outcome] { ended(outcome); });
  }

  void ended(const Outcome& outcome) {
    --in_flight_;
    ++ended_;
    if (outcome.error.empty()) {
      failures_in_row_ = 0;
    } else {
      ++failed_;
      if (++failures_in_row_ == options_.max_failures_in_row) {
        stop(absl::UnavailableError(str_cat(
            failures_in_row_, " requests failed one after another, the last by ", outcome.error)));
      }
    }
    finish_if_idle();
  }

  void stop(absl::Status why) {
    if (std::exchange(stopped_, true)) return;
    next_send_.cancel();
    transport_.abort(str_cat("stopped: ", why.message()));
    result_.status = std::move(why);
  }

  // Takes from the loop what would keep it.
  void finish_if_idle() {
    if (sending_ || in_flight_ > 0) return;
    finished_ = true;
    next_progress_.cancel();
    signals_.cancel();
  }

  asio::awaitable<void> show_progress() {
    while (!finished_) {
      error_code code;
      next_progress_.expires_after(kProgressEvery);
      co_await next_progress_.async_wait(asio::redirect_error(asio::use_awaitable, code));
      if (!code && options_.on_progress) options_.on_progress(sent_, ended_, failed_);
    }
  }

  asio::io_context& loop_;
  Transport& transport_;
  const std::vector<Request>& requests_;
  const LoadOptions& options_;
  asio::steady_timer next_send_;
  asio::steady_timer next_progress_;
  asio::signal_set signals_;

  TimePoint start_;
  LoadResult result_;
  bool sending_ = true;
  bool stopped_ = false;
  bool finished_ = false;
  uint32_t in_flight_ = 0;
  uint32_t failures_in_row_ = 0;
  uint64_t sent_ = 0;
  uint64_t ended_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace

std::string timeout_error(Duration timeout) {
  return str_cat("timeout: no whole answer within ", to_seconds(timeout), " s");
}

absl::StatusOr<LoadResult> run_load(const EndpointOptions& endpoint,
                                    const std::vector<Request>& requests,
                                    const LoadOptions& options) {
  if (options.max_in_flight < 1 || options.max_in_flight > kInFlightMax) {
    return absl::InvalidArgumentError(
        str_cat("requests in flight: is ", options.max_in_flight, ", must be 1 to ", kInFlightMax));
  }
  if (!(options.timeout_s > 0) || options.timeout_s > kTimeoutMaxS) {
    return absl::InvalidArgumentError(str_cat("timeout: is ", options.timeout_s,
                                              " s, must be above 0 and at most ", kTimeoutMaxS));
  }
  const auto timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.timeout_s));
  raise_file_limit(options.max_in_flight + kOtherFiles);
  asio::io_context loop(1);
  const auto make_transport =
      endpoint.url.starts_with("grpc://") ? make_grpc_transport : make_http_transport;
  RAG_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                       make_transport(loop, endpoint, timeout));
  RAG_RETURN_IF_ERROR(transport->prepare(requests));
  loop.restart();
  const Precedence precedence;
  return Load(loop, *transport, requests, options).run();
}

}  // namespace ragcache::loadgen
