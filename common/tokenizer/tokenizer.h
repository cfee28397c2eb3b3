#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/hash.h"
#include "common/weights/gguf.h"

namespace ragcache {

using TokenId = uint32_t;

// A language model's tokenizer. Immutable after construction, so any thread may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ids of `text` taken as plain text: the spelling of a special token inside it encodes as
  // ordinary characters, and no space is put in front. Decoding the ids gives `text` back byte for
  // byte, but for what the vocabulary cannot express. Byte-level ones leave out bytes that they
  // have no token for (SmolLM2 lacks six control characters, and bytes that only invalid UTF-8 or
  // unassigned planes use); those of SentencePiece take U+2581 for a space; Qwen2's tokenizer.json
  // composes characters (NFC). The reference libraries do the same.
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;
  // Whether the model saw each text with a space in front that is not the text's own
  // (SentencePiece's "dummy prefix"): prompts put it in where the model's rule has it.
  virtual bool space_prefix() const { return false; }
  // The id of a special token by its spelling, if the vocabulary has it: one that text never gives.
  virtual std::optional<TokenId> special_token(std::string_view spelling) const = 0;
  // The bytes of one token: may be part of a UTF-8 character. Empty for ids out of range.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;  // structure: answers do not show it
  virtual uint32_t vocabulary_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;  // only if the model's prompts begin with it
  virtual std::optional<TokenId> eos() const = 0;
  // Equal for two tokenizers exactly when they give equal ids.
  virtual const Digest& fingerprint() const = 0;

  std::string decode(std::span<const TokenId> ids) const;
};

// From a GGUF file's tokenizer.ggml.* metadata: byte-level BPE (model "gpt2") or SentencePiece's
// ("llama").
absl::StatusOr<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const GgufFile& file);

}  // namespace ragcache
