#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace ragcache {

// For tests: GGUF metadata of a tokenizer with the letters a, b, c, a space and two merges.
struct TinyVocabulary {
  std::string model = "gpt2";
  std::string pre = "smollm";
  std::vector<std::string> tokens = {"<|s|>", "<|im_start|>", "<|im_end|>", "a",  "b",
                                     "c",     "\u0120",       "ab",         "abc"};
  std::vector<int32_t> types = {3, 3, 3, 1, 1, 1, 1, 1, 1};
  std::vector<std::string> merges = {"a b", "ab c"};
  uint32_t eos = 2;
  bool add_bos = false;

  absl::StatusOr<std::shared_ptr<const Tokenizer>> load() const;
};

// The tokenizer of the demo's model in RAG_DEPS_DIR, loaded once a process.
std::shared_ptr<const Tokenizer> demo_tokenizer();

// Bytes of which many are valid UTF-8 and many are nearly so.
std::string random_bytes(std::mt19937_64& random, size_t n_parts);

}  // namespace ragcache
