#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <string>
#include <string_view>

#include "common/http/sse.h"
#include "loadgen/load/answer_reader.h"

namespace ragcache::loadgen {

// An HTTP answer as its bytes come: put() takes them from the connection's buffer, and the events
// of the body go straight into the outcome.
class StreamedAnswer final : public boost::beast::http::basic_parser<false> {
 public:
  explicit StreamedAnswer(Outcome& outcome);

  // When the bytes of the next put() came, after the start of the load.
  void set_now(Duration now) { now_ = now; }

  // As an outcome has it; empty: nothing is wrong with what has come.
  const std::string& error() const { return error_; }
  // Whether the stream has come to its end, if not the HTTP message.
  bool done() const { return answer_.done(); }
  // After the last byte: the error of an answer that is none, or less than one.
  std::string final_error() const;

 private:
  using string_view = boost::beast::string_view;
  using error_code = boost::beast::error_code;

  void on_request_impl(boost::beast::http::verb, string_view, string_view, int,
                       error_code&) override {}
  void on_response_impl(int status, string_view, int, error_code&) override { status_ = status; }
  void on_field_impl(boost::beast::http::field name, string_view, string_view value,
                     error_code&) override {
    if (name == boost::beast::http::field::content_type) content_type_.assign(value);
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view body, error_code&) override { return take(body); }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code&) override { return take(body); }
  void on_finish_impl(error_code&) override {}

  bool is_stream() const;
  size_t take(string_view body);

  AnswerReader answer_;
  http::SseParser events_;
  Duration now_{};
  int status_ = 0;
  std::string content_type_;
  std::string body_;  // of what is no stream
  std::string error_;
};

}  // namespace ragcache::loadgen
