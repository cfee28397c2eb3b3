#pragma once

#include <cstdint>
#include <string>

#include "common/config/options.h"

namespace ragcache::worker {

struct Config {
  std::string model;
  uint32_t threads = 0;
  uint32_t kv_memory_mib = 1024;
  std::string kv_dtype = "fp16";
  uint32_t max_batch_tokens = 512;
  uint32_t max_iteration_ms = 200;

  // Wiring, set by whoever starts the services.
  std::string listen;
};

inline void add_options(OptionTable& table, Config& config) {
  table.add("model", &config.model,
            {.required = true, .doc = "language model: a GGUF file or a safetensors folder"});
  table.add("threads", &config.threads,
            {.unit = "threads",
             .min = 0,
             .max = 1024,
             .doc = "threads that the model computes on; 0: as many as there are cores"});
  table.add("kv_memory_mib", &config.kv_memory_mib,
            {.unit = "MiB", .min = 1, .max = 1 << 22, .doc = "memory for cached and running KV"});
  table.add("kv_dtype", &config.kv_dtype,
            {.choices = {"fp16", "fp32"},
             .doc = "what keys and values are kept in; fp16 takes half the memory"});
  table.add("max_batch_tokens", &config.max_batch_tokens,
            {.unit = "tokens",
             .min = 1,
             .max = 8192,
             .doc = "tokens that one iteration computes; longer prompts run in pieces"});
  table.add("max_iteration_ms", &config.max_iteration_ms,
            {.unit = "ms",
             .min = 1,
             .max = 60000,
             .doc = "longest that streams wait for their next token while prompts are computed"});
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add(
      "listen", &config.listen,
      {.required = true, .doc = "where the segment protocol is served: host:port or unix:PATH"});
}

}  // namespace ragcache::worker
