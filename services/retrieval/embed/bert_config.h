#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ragcache::retrieval {

// The shape of a BERT sentence encoder, from its folder's config.json and, where they exist,
// sentence_bert_config.json (longest input) and 1_Pooling/config.json (how tokens become one
// vector).
struct BertConfig {
  uint32_t vocabulary_size = 0;
  uint32_t hidden_size = 0;
  uint32_t n_layers = 0;
  uint32_t n_heads = 0;
  uint32_t feed_forward_size = 0;
  uint32_t positions = 0;
  uint32_t max_tokens = 0;  // special tokens included
  double norm_epsilon = 0;

  uint32_t head_dim() const { return hidden_size / n_heads; }
};

// FAILED_PRECONDITION if the folder is missing, NOT_FOUND if config.json or a field is;
// INVALID_ARGUMENT if a field is out of bounds, or describes a model that this encoder does not
// compute (another activation, position embedding or pooling). Messages name file and field.
absl::StatusOr<BertConfig> read_bert_config(const std::string& folder);

}  // namespace ragcache::retrieval
