#include "common/http/router.h"

#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"

namespace ragcache::http {
namespace {

bool is_name(std::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

bool segments_match(const std::vector<std::string>& pattern,
                    const std::vector<std::string_view>& path) {
  if (pattern.size() != path.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (is_name(pattern[i]) ? path[i].empty() : pattern[i] != path[i]) return false;
  }
  return true;
}

}  // namespace

void Router::add(std::string method, std::string pattern, Handler handler) {
  RAG_CHECK(!pattern.empty() && pattern.front() == '/');
  const std::vector<std::string_view> pieces = split(pattern, '/');
  std::vector<std::string> segments(pieces.begin(), pieces.end());
  routes_.push_back(
      {std::move(method), std::move(pattern), std::move(segments), std::move(handler)});
}

absl::StatusOr<Router::Match> Router::match(Request& request) const {
  const std::vector<std::string_view> path = split(request.path, '/');
  const std::string_view wanted =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  Match match;
  for (const Route& route : routes_) {
    if (!segments_match(route.segments, path)) continue;
    if (request.route.empty()) request.route = route.pattern;
    if (route.method != wanted) {
      match.allow += str_cat(match.allow.empty() ? "" : ", ", route.method,
                             route.method == "GET" ? ", HEAD" : "");
      continue;
    }
    request.route = route.pattern;
    for (size_t i = 0; i < path.size(); ++i) {
      const std::string& segment = route.segments[i];
      if (!is_name(segment)) continue;
      RAG_ASSIGN_OR_RETURN(std::string value, percent_decode(path[i]));
      request.path_values.emplace_back(segment.substr(1, segment.size() - 2), std::move(value));
    }
    match.handler = &route.handler;
    return match;
  }
  return match;
}

}  // namespace ragcache::http
