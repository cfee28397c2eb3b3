#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ragcache::http {

// Undoes gzip (RFC 1952, also several members in a row) piece by piece, in memory that does not
// grow with what comes out.
class Inflater {
 public:
  Inflater();
  ~Inflater();
  Inflater(Inflater&&) noexcept;

  // More input. REQUIRED: next() gave an empty piece since the last one. `bytes` live until next()
  // gives an empty piece again.
  void feed(std::string_view bytes);

  // The next piece of output, empty when more input is needed. Lives until the next call.
  absl::StatusOr<std::string_view> next();

  // Whether what was fed is whole.
  bool at_end() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ragcache::http
