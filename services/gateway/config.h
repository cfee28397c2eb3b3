#pragma once

#include <cstdint>
#include <string>

#include "common/config/options.h"
#include "common/http/server.h"
#include "common/limits.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {

struct Config {
  std::string listen = "127.0.0.1:8080";
  uint32_t http_threads = 2;
  http::Limits limits;
  std::string grpc_listen;

  uint32_t default_top_k = 5;
  uint32_t max_top_k = 100;
  int64_t answer_timeout_ms = 600'000;
  int64_t upstream_timeout_ms = 30'000;
  int64_t stop_grace_ms = 5'000;
  uint32_t max_document_bytes = 1 << 20;
  std::string admin_key;
  std::string api_keys_file;

  // Wiring, set by whoever starts the services: unix:PATH or host:port.
  std::string controller_address;
  std::string retrieval_address;
};

inline void add_options(OptionTable& table, Config& config) {
  table.add(
      "listen", &config.listen,
      {.required = true, .doc = "host:port of the HTTP API; port 0 lets the system choose one"});
  table.add("grpc_listen", &config.grpc_listen, {.doc = "host:port of the gRPC API; empty: none"});
  table.add("http_threads", &config.http_threads,
            {.unit = "threads", .min = 1, .max = 256, .doc = "threads that serve HTTP"});
  table.add("max_connections", &config.limits.max_connections,
            {.unit = "connections",
             .min = 1,
             .max = 1'000'000,
             .doc = "open HTTP connections; more are answered 503"});
  table.add("max_header_bytes", &config.limits.max_header_bytes,
            {.unit = "bytes", .min = 1024, .max = 1 << 20, .doc = "an HTTP request's header"});
  table.add(
      "max_body_bytes", &config.limits.max_body_bytes,
      {.unit = "bytes",
       .min = 1024,
       .max = 1 << 30,
       .doc = "a request's body, but for a JSONL upload, which has no limit; a gRPC message"});
  table.add("header_timeout_ms", &config.limits.header_timeout_ms,
            {.unit = "ms", .min = 1, .max = 3'600'000, .doc = "for a request's header to arrive"});
  table.add("body_timeout_ms", &config.limits.body_timeout_ms,
            {.unit = "ms",
             .min = 1,
             .max = 3'600'000,
             .doc = "without a byte of a body, or a message of a gRPC upload"});
  table.add("whole_body_timeout_ms", &config.limits.whole_body_timeout_ms,
            {.unit = "ms",
             .min = 1,
             .max = 86'400'000,
             .doc = "for a request's body to arrive, but for a JSONL upload, which has no limit"});
  table.add("write_timeout_ms", &config.limits.write_timeout_ms,
            {.unit = "ms",
             .min = 1,
             .max = 3'600'000,
             .doc = "without a client taking more of its answer"});
  table.add("idle_timeout_ms", &config.limits.idle_timeout_ms,
            {.unit = "ms", .min = 1, .max = 86'400'000, .doc = "between a connection's requests"});
  table.add("default_top_k", &config.default_top_k,
            {.unit = "documents",
             .min = 1,
             .max = kMaxRequestDocuments,
             .doc = "documents of a request that does not say"});
  table.add("max_top_k", &config.max_top_k,
            {.unit = "documents",
             .min = 1,
             .max = kMaxRequestDocuments,
             .doc = "documents a request may ask for"});
  table.add("answer_timeout_ms", &config.answer_timeout_ms,
            {.unit = "ms",
             .min = 1,
             .max = 86'400'000,
             .doc = "for one answer, start to end; bound of X-Request-Timeout-Ms"});
  table.add("upstream_timeout_ms", &config.upstream_timeout_ms,
            {.unit = "ms", .min = 1, .max = 3'600'000, .doc = "for a search or a status"});
  table.add("stop_grace_ms", &config.stop_grace_ms,
            {.unit = "ms", .min = 0, .max = 3'600'000, .doc = "for open requests when stopping"});
  table.add("max_document_bytes", &config.max_document_bytes,
            {.unit = "bytes", .min = 1024, .max = kMaxTextBytes, .doc = "one document as JSON"});
  table.add("admin_key", &config.admin_key,
            {.doc = "if set, /admin wants it as `Authorization: Bearer`"});
  table.add("api_keys_file", &config.api_keys_file,
            {.doc = "file of `tenant:key` lines; if set, every request wants one of the keys as "
                    "`Authorization: Bearer`"});
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add("controller_address", &config.controller_address,
            {.required = true, .doc = "of the controller: host:port or unix:PATH"});
  table.add("retrieval_address", &config.retrieval_address,
            {.required = true, .doc = "of the retrieval service: host:port or unix:PATH"});
}

}  // namespace ragcache::gateway
