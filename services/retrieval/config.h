#pragma once

#include <cstdint>
#include <string>

#include "common/config/options.h"
#include "common/tokenizer/chat_template.h"

namespace ragcache::retrieval {

struct Config {
  // Where the service listens: unix:PATH or host:port.
  std::string listen;

  std::string state_dir = "state";
  std::string model;
  std::string chat_template = "auto";
  std::string embedding_model;
  std::string index = "auto";
  uint32_t ivf_lists = 0;
  uint32_t ivf_probes = 0;
  uint32_t retrieval_threads = 2;
  uint32_t chunk_tokens = 1024;
  uint32_t chunk_overlap_tokens = 64;
};

inline void add_options(OptionTable& table, Config& config) {
  table.add("state_dir", &config.state_dir,
            {.required = true, .doc = "folder for everything that outlives the process"});
  table.add("model", &config.model,
            {.required = true, .doc = "language model: a GGUF file or a safetensors folder"});
  table.add("chat_template", &config.chat_template,
            {.choices = chat_template_choices(),
             .doc = "prompt format of the language model; auto: as its own template has it"});
  table.add("embedding_model", &config.embedding_model,
            {.required = true,
             .doc = "folder of the BERT sentence encoder: config.json, model.safetensors, "
                    "vocab.txt"});
  table.add("index", &config.index,
            {.choices = {"auto", "exact", "ivf_flat"},
             .doc = "how vectors are searched: all of them, those of the nearest clusters, or the "
                    "first until there are 20,000 and then the second"});
  table.add("ivf_lists", &config.ivf_lists,
            {.unit = "clusters",
             .max = 1 << 20,
             .doc = "clusters of an ivf_flat index; 0 chooses by the number of documents. "
                    "Training waits for 39 documents a cluster"});
  table.add("ivf_probes", &config.ivf_probes,
            {.unit = "clusters",
             .max = 1 << 20,
             .doc = "clusters that a search scans; 0 is one in sixteen, eight at least"});
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
}

// What `ragcache serve` wires itself, and an executable of its own must be told.
inline void add_wiring_options(OptionTable& table, Config& config) {
  table.add("listen", &config.listen,
            {.required = true, .doc = "where the service is called: host:port or unix:PATH"});
}

}  // namespace ragcache::retrieval
