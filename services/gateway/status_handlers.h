#pragma once

#include <boost/asio/awaitable.hpp>

#include "common/http/exchange.h"
#include "services/gateway/services.h"

// The small routes: health, models, metrics, administration.
namespace ragcache::gateway {

boost::asio::awaitable<void> handle_livez(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_readyz(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_metrics(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_models(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_model(Services& services, http::Exchange& exchange);

// Behind the admin key, if there is one.
boost::asio::awaitable<void> handle_cache(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_clear_cache(Services& services, http::Exchange& exchange);

// Whether an Authorization header carries `key`, in time that does not depend on where they differ.
bool bears_key(std::string_view authorization, std::string_view key);

}  // namespace ragcache::gateway
