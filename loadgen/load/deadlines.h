#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "common/clock.h"

namespace ragcache::loadgen {

// Calls back for what is still there a fixed time after it was added. As the time is the same for
// all, they expire in the order in which they came, and one timer serves thousands. Lives on the
// loop.
class Deadlines {
 public:
  Deadlines(boost::asio::io_context& loop, Duration timeout) : timeout_(timeout), timer_(loop) {}

  // A number to remove it by.
  uint64_t add(std::function<void()> expired) {
    const uint64_t number = next_number_++;
    entries_.emplace(number, Entry{steady_now() + timeout_, std::move(expired)});
    arm();
    return number;
  }

  // Does nothing if that has expired. Keeps nothing on the loop when the last one goes.
  void remove(uint64_t number) {
    entries_.erase(number);
    if (entries_.empty()) timer_.cancel();
  }

 private:
  struct Entry {
    TimePoint at;
    std::function<void()> expired;
  };

  void arm() {
    if (armed_ || entries_.empty()) return;
    armed_ = true;
    timer_.expires_at(entries_.begin()->second.at);
    timer_.async_wait([this](const boost::system::error_code&) {
      armed_ = false;
      while (!entries_.empty() && entries_.begin()->second.at <= steady_now()) {
        const std::function<void()> expired = std::move(entries_.begin()->second.expired);
        entries_.erase(entries_.begin());
        expired();
      }
      arm();
    });
  }

  const Duration timeout_;
  boost::asio::steady_timer timer_;
  bool armed_ = false;
  uint64_t next_number_ = 0;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace ragcache::loadgen
