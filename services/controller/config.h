#pragma once

#include <cstdint>
#include <string>

#include "common/config/options.h"
#include "common/tokenizer/chat_template.h"
#include "services/controller/policy/policy.h"

namespace ragcache::controller {

struct Config {
  std::string model;
  std::string chat_template = "auto";
  std::string cache_policy = policy_names().front();
  bool cache_history = true;
  bool prefix_cache = true;
  std::string system_prompt =
      "You are a helpful assistant. Answer the question from the documents, in a few sentences.";
  uint32_t cached_prefix_docs = 0;
  uint32_t max_requests = 1024;
  uint32_t max_waiting = 512;
  uint32_t max_running = 16;
  uint32_t max_tokens = 256;
  uint32_t actor_threads = 2;

  // Wiring, set by whoever starts the services.
  std::string listen;
  std::string worker_address;
  std::string retrieval_address;
};

inline void add_options(OptionTable& table, Config& config) {
  table.add("model", &config.model,
            {.required = true, .doc = "language model: a GGUF file or a safetensors folder"});
  table.add("chat_template", &config.chat_template,
            {.choices = chat_template_choices(),
             .doc = "prompt format of the language model; auto: as its own template has it"});
  table.add("cache_policy", &config.cache_policy,
            {.choices = policy_names(),
             .doc = "which documents' KV leaves the cache first"});
  table.add("cache_history", &config.cache_history,
            {.doc = "whether the policy remembers what it knew of documents whose KV has left"});
  table.add("prefix_cache", &config.prefix_cache,
            {.doc = "whether KV is kept from one request to the next; without, every prompt is "
                    "computed whole, which is of use for comparisons alone"});
  table.add("system_prompt", &config.system_prompt,
            {.doc = "system message of requests that bring none"});
  table.add("cached_prefix_docs", &config.cached_prefix_docs,
            {.unit = "documents",
             .min = 0,
             .max = 1000,
             .doc = "leading documents of a prompt whose KV is cached, for a large top_k whose "
                    "orderings seldom come again; 0: all"});
  table.add("max_requests", &config.max_requests,
            {.unit = "requests", .min = 1, .max = 1e6, .doc = "open requests; more are refused"});
  table.add("max_waiting", &config.max_waiting,
            {.unit = "requests",
             .min = 1,
             .max = 1e6,
             .doc = "requests waiting for the worker; more are refused"});
  table.add("max_running", &config.max_running,
            {.unit = "requests", .min = 1, .max = 4096, .doc = "requests on the worker at once"});
  table.add(
      "max_tokens", &config.max_tokens,
      {.unit = "tokens", .min = 1, .max = 1e6, .doc = "answer length of requests that name none"});
  table.add("actor_threads", &config.actor_threads,
            {.unit = "threads", .min = 1, .max = 256, .doc = "threads of the controller's actors"});
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add("listen", &config.listen,
            {.required = true, .doc = "where the gateway calls: host:port or unix:PATH"});
  table.add("worker_address", &config.worker_address,
            {.required = true, .doc = "of the worker group: host:port or unix:PATH"});
  table.add("retrieval_address", &config.retrieval_address,
            {.required = true, .doc = "of the retrieval service: host:port or unix:PATH"});
}

}  // namespace ragcache::controller
