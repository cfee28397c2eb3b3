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
  std::string activations = "fp32";
  uint32_t max_batch_tokens = 512;
  uint32_t max_iteration_ms = 200;
  bool deterministic = false;
  uint32_t host_memory_mib = 1024;
  std::string host_arena;
  std::string verify_kv = "always";
  std::string profile;
  uint32_t profile_after_s = 60;
  std::string state_dir = "state";

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
  table.add(
      "kv_dtype", &config.kv_dtype,
      {.choices = {"fp16", "fp32", "int8"},
       .doc = "what keys and values are kept in; fp16 takes half the memory, int8 little more "
              "than a quarter, and is less exact"});
  table.add("activations", &config.activations,
            {.choices = {"fp32", "int8"},
             .doc = "what weights that are stored quantised are multiplied with; int8 computes "
                    "prompts sooner and is less exact, as in llama.cpp"});
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
  table.add(
      "deterministic", &config.deterministic,
      {.doc = "of no effect any more: answers are always the same bits, whatever is cached and "
              "whoever else is served"});
  table.add("host_memory_mib", &config.host_memory_mib,
            {.unit = "MiB",
             .min = 0,
             .max = 1 << 24,
             .doc = "memory of the host tier, taken as a whole at the start; 0: no host tier"});
  table.add(
      "host_arena", &config.host_arena,
      {.doc = "file of the host tier, which outlives the process and belongs on a file system "
              "in memory; empty: one in /dev/shm that is named after state_dir, or kv.arena in "
              "state_dir if there is no room"});
  table.add("verify_kv", &config.verify_kv,
            {.choices = {"first", "always", "off"},
             .doc = "when the checksums of copies on the host are compared: at each load, at the "
                    "first one after a restart, or never"});
  table.add("profile", &config.profile,
            {.doc = "file of measured prefill times; empty: prefill_profile.json in state_dir"});
  table.add(
      "profile_after_s", &config.profile_after_s,
      {.unit = "s",
       .min = 0,
       .max = 86400,
       .doc = "how long the worker must have had nothing to do before it measures prefill "
              "times, for less than a minute in all; a request that comes meanwhile waits for "
              "the one being measured"});
  table.add("state_dir", &config.state_dir,
            {.required = true, .doc = "folder for everything that outlives the process"});
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add(
      "listen", &config.listen,
      {.required = true, .doc = "where the segment protocol is served: host:port or unix:PATH"});
}

}  // namespace ragcache::worker
