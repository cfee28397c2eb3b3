#pragma once

#include "common/http/router.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// Every route of the HTTP API. `services` outlive the router.
http::Router make_routes(Services& services);

}  // namespace ragcache::gateway
