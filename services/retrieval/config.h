#pragma once

#include <cstdint>
#include <string>

#include "common/config/options.h"
#include "common/tokenizer/chat_template.h"

namespace ragcache::retrieval {

struct Config {
  // Where the service listens: unix:PATH or host:port.
  std::string listen;

  std::string role = "all";
  std::string shards;  // of a router
  uint32_t shard_timeout_ms = 5'000;
  uint32_t shard_index = 0;  // of a shard
  uint32_t shard_count = 1;

  std::string state_dir = "state";
  std::string model;
  std::string chat_template = "auto";
  std::string embedding_model;
  std::string index = "auto";
  uint32_t ivf_lists = 0;
  uint32_t ivf_probes = 0;
  uint32_t pq_subvectors = 0;
  uint32_t pq_bits = 8;
  uint32_t refine_factor = 4;
  uint32_t hnsw_m = 32;
  uint32_t ef_construction = 100;
  uint32_t ef_search = 64;
  uint32_t local_shards = 1;
  uint32_t retrieval_threads = 2;
  uint32_t embedding_threads = 0;
  uint32_t chunk_tokens = 1024;
  uint32_t chunk_overlap_tokens = 64;
};

// Whether the process cannot do without the models: a shard can.
enum class Models { kRequired, kByRole };

inline void add_options(OptionTable& table, Config& config, Models models = Models::kRequired) {
  const bool required = models == Models::kRequired;
  table.add("state_dir", &config.state_dir,
            {.required = true, .doc = "folder for everything that outlives the process"});
  table.add("model", &config.model,
            {.required = required, .doc = "language model: a GGUF file or a safetensors folder"});
  table.add("chat_template", &config.chat_template,
            {.choices = chat_template_choices(),
             .doc = "prompt format of the language model; auto: as its own template has it"});
  table.add("embedding_model", &config.embedding_model,
            {.required = required,
             .doc = "folder of the BERT sentence encoder: config.json, model.safetensors, "
                    "vocab.txt"});
  table.add("index", &config.index,
            {.choices = {"auto", "exact", "ivf_flat", "ivf_pq", "ivf_sq8", "hnsw"},
             .doc = "how vectors are searched: exact scores all of them, the ivf kinds those of "
                    "the nearest clusters, whole or compressed, hnsw follows a graph; auto is "
                    "exact until there are 20,000 and then ivf_flat"});
  table.add("ivf_lists", &config.ivf_lists,
            {.unit = "clusters",
             .max = 1 << 20,
             .doc = "clusters of an ivf index; 0 chooses by the number of documents. "
                    "Training waits for 39 documents a cluster"});
  table.add("ivf_probes", &config.ivf_probes,
            {.unit = "clusters",
             .max = 1 << 20,
             .doc = "clusters that a search scans; 0 is one in sixteen, eight at least"});
  table.add("pq_subvectors", &config.pq_subvectors,
            {.max = 1 << 16,
             .doc = "parts that ivf_pq encodes a vector in, a divisor of its dimension; 0 is one "
                    "for eight components"});
  table.add("pq_bits", &config.pq_bits,
            {.unit = "bits", .min = 4, .max = 8, .doc = "of the code of such a part"});
  table.add("refine_factor", &config.refine_factor,
            {.max = 1'000,
             .doc = "ivf_pq scores so many times top_k anew by vectors in half precision, which "
                    "it keeps for that; 0 does without"});
  table.add("hnsw_m", &config.hnsw_m,
            {.min = 2, .max = 256, .doc = "neighbours of a vector in the graph of hnsw"});
  table.add("ef_construction", &config.ef_construction,
            {.min = 1, .max = 1 << 16, .doc = "candidates for them when a vector is added"});
  table.add("ef_search", &config.ef_search,
            {.min = 1, .max = 1 << 16, .doc = "candidates that a search of hnsw keeps"});
  table.add("local_shards", &config.local_shards,
            {.min = 1,
             .max = 64,
             .doc = "parts that the vectors are kept in, of one process that does all of "
                    "retrieval"});
  table.add("chunk_tokens", &config.chunk_tokens,
            {.unit = "tokens",
             .max = 65'536,
             .doc = "longest piece that a document is kept as, in a corpus that names none, 64 at "
                    "least; 0 keeps documents whole"});
  table.add("chunk_overlap_tokens", &config.chunk_overlap_tokens,
            {.unit = "tokens",
             .max = 32'768,
             .doc = "whole sentences that a piece repeats of the one before, half of chunk_tokens "
                    "at most"});
  table.add("retrieval_threads", &config.retrieval_threads,
            {.unit = "threads", .min = 1, .max = 256, .doc = "threads that search the index"});
  table.add("embedding_threads", &config.embedding_threads,
            {.unit = "threads",
             .min = 0,
             .max = 1024,
             .doc = "threads that the encoder computes on; 0: as many as there are cores"});
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add("listen", &config.listen,
            {.required = true, .doc = "where the service is called: host:port or unix:PATH"});
  table.add("role", &config.role,
            {.choices = {"all", "router", "shard"},
             .doc = "what of retrieval the process does: a shard holds a part of the vectors, the "
                    "router everything else"});
  table.add("shards", &config.shards,
            {.doc = "of role=router: addresses of the shards, shard 0 first, with ';' between; "
                    "replicas of a shard with ',' between"});
  table.add("shard_timeout_ms", &config.shard_timeout_ms,
            {.unit = "milliseconds",
             .min = 1,
             .max = 600'000,
             .doc = "of role=router: a search asks another replica after so long, and waits so "
                    "long for a shard that has none which is up to date"});
  table.add("shard_index", &config.shard_index,
            {.max = 1'023, .doc = "of role=shard: which part it holds, from 0"});
  table.add("shard_count", &config.shard_count,
            {.min = 1, .max = 1'024, .doc = "of role=shard: how many parts there are"});
}

}  // namespace ragcache::retrieval
