#pragma once

#include <boost/asio/awaitable.hpp>

#include "common/http/exchange.h"
#include "services/gateway/services.h"

// Documents by HTTP: what Retrieval owns.
namespace ragcache::gateway {

// POST /v1/documents: one document, an array, or JSONL of any length, which goes on to Retrieval
// as it comes. With `?progress=1` or `Accept: application/x-ndjson` each acknowledgement is a line
// of the answer.
boost::asio::awaitable<void> handle_upload(Services& services, http::Exchange& exchange);

// GET /v1/documents?after=ID&limit=N
boost::asio::awaitable<void> handle_list(Services& services, http::Exchange& exchange);

// GET and DELETE /v1/documents/{id}
boost::asio::awaitable<void> handle_get(Services& services, http::Exchange& exchange);
boost::asio::awaitable<void> handle_delete(Services& services, http::Exchange& exchange);

// POST /v1/search: {"query", "top_k"}
boost::asio::awaitable<void> handle_search(Services& services, http::Exchange& exchange);

}  // namespace ragcache::gateway
