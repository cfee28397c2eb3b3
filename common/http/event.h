#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace ragcache::http {

// Wakes one waiting coroutine. A set() without a waiter is kept for the next wait(); several such
// are one. Lives on one strand: all calls come from it.
class Event {
 public:
  explicit Event(boost::asio::any_io_executor executor)
      : timer_(std::move(executor), boost::asio::steady_timer::time_point::max()) {}

  void set() {
    set_ = true;
    timer_.cancel();
  }

  boost::asio::awaitable<void> wait() {
    while (!set_) {
      co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    set_ = false;
  }

 private:
  // A timer that never fires: cancelling it is what resumes the waiter.
  boost::asio::steady_timer timer_;
  bool set_ = false;
};

}  // namespace ragcache::http
