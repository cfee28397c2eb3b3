#pragma once

#include <boost/asio/awaitable.hpp>
#include <vector>

#include "absl/status/status.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "services/gateway/http/answer_fields.h"
#include "services/gateway/http/answer_format.h"
#include "services/gateway/http/call.h"

namespace ragcache::gateway {

// Asks the controller every request and answers the client, whole or as server-sent events. Choice
// i of request r has index r * n + i. What comes before the first text is held back: until then an
// error has its own HTTP status, which is returned; later it is an event of the stream.
boost::asio::awaitable<absl::Status> answer(Call& call,
                                            std::vector<controller::v1::AnswerRequest> requests,
                                            StreamOptions options, const AnswerFormat& format);

}  // namespace ragcache::gateway
