#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>

#include "absl/status/status.h"

namespace ragcache::loadgen {

// SIGINT and SIGTERM for as long as a command runs. They are asked for between its steps, so that
// what was measured is reported and what was made is removed. One thread.
class Interrupts {
 public:
  Interrupts() {
    signals_.async_wait([this](const boost::system::error_code& code, int signal) {
      if (!code) came_ = signal;
    });
  }

  // CANCELLED once one has come.
  absl::Status check() {
    loop_.poll();
    if (came_ == 0) return absl::OkStatus();
    return absl::CancelledError(came_ == SIGINT ? "ended by SIGINT" : "ended by SIGTERM");
  }

 private:
  boost::asio::io_context loop_;
  boost::asio::signal_set signals_{loop_, SIGINT, SIGTERM};
  int came_ = 0;
};

}  // namespace ragcache::loadgen
