#pragma once

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace ragcache::fakes {

// A blocking socket that says exactly the bytes it is told. Gives up after ten seconds.
class RawClient {
 public:
  // A `receive_buffer_bytes` of 0 leaves what is kept unread to the system.
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0) : socket_(io_) {
    socket_.open(boost::asio::ip::tcp::v4());
    if (receive_buffer_bytes > 0) {
      socket_.set_option(boost::asio::socket_base::receive_buffer_size(receive_buffer_bytes));
    }
    socket_.connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), port));
    socket_.set_option(boost::asio::ip::tcp::no_delay(true));
    timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }

  void send(std::string_view bytes) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes.data(), bytes.size()), ignored);
  }

  // Until the server closes.
  std::string read_all() {
    while (read_some()) {
    }
    return std::exchange(input_, "");
  }

  // One answer with a Content-Length: head and body.
  std::string read_answer() {
    size_t head;
    while ((head = input_.find("\r\n\r\n")) == std::string::npos && read_some()) {
    }
    if (head == std::string::npos) return std::exchange(input_, "");
    head += 4;
    const size_t field = input_.find("Content-Length: ");
    const size_t length = field < head ? std::stoul(input_.substr(field + 16)) : 0;
    while (input_.size() < head + length && read_some()) {
    }
    std::string answer = input_.substr(0, head + length);
    input_.erase(0, head + length);
    return answer;
  }

  void read_until(std::string_view what) {
    while (input_.find(what) == std::string::npos && read_some()) {
    }
    const size_t at = input_.find(what);
    input_.erase(0, at == std::string::npos ? at : at + what.size());
  }

  bool read_some() {
    char bytes[4096];
    const ssize_t n = ::recv(socket_.native_handle(), bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    input_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  void end_sending() {
    boost::system::error_code ignored;
    socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  }
  void reset() {
    boost::system::error_code ignored;
    socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
    socket_.close(ignored);
  }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  std::string input_;
};

}  // namespace ragcache::fakes
