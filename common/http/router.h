#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/exchange.h"

namespace ragcache::http {

// Finds a request's handler by method and path. Patterns are literal segments and {names}, each of
// which takes one non-empty segment: "/v1/documents/{id}". The first route added wins. Constant
// once the server runs, then read by any thread.
class Router {
 public:
  void add(std::string method, std::string pattern, Handler handler);

  // What serves `method` on a path, and what else would.
  struct Match {
    const Handler* handler = nullptr;  // null: no such path, or not by this method
    std::string allow;                 // methods of the path, for 405; empty: no such path
  };
  // Fills request.route and request.path_values. HEAD is served by GET's handler. Fails on a
  // malformed escape in a path segment.
  absl::StatusOr<Match> match(Request& request) const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    std::vector<std::string> segments;
    Handler handler;
  };
  std::vector<Route> routes_;
};

}  // namespace ragcache::http
