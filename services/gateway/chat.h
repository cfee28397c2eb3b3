#pragma once

#include <boost/asio/awaitable.hpp>

#include "common/http/exchange.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// POST /v1/chat/completions: one Controller.Answer call, whole or as server-sent events.
boost::asio::awaitable<void> handle_chat(Services& services, http::Exchange& exchange);

}  // namespace ragcache::gateway
