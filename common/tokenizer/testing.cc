#include "common/tokenizer/testing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "common/check.h"
#include "common/strings.h"
#include "common/tokenizer/utf8.h"
#include "common/weights/gguf_writer.h"

namespace ragcache {

absl::StatusOr<std::shared_ptr<const Tokenizer>> TinyVocabulary::load() const {
  GgufWriter writer;
  writer.add_string("tokenizer.ggml.model", model);
  writer.add_string("tokenizer.ggml.pre", pre);
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  writer.add_int32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", merges);
  writer.add_uint32("tokenizer.ggml.bos_token_id", 0);
  writer.add_uint32("tokenizer.ggml.eos_token_id", eos);
  writer.add_bool("tokenizer.ggml.add_bos_token", add_bos);
  const std::string bytes = writer.bytes();
  const int descriptor = ::memfd_create("tiny_vocabulary", MFD_CLOEXEC);
  RAG_CHECK(::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto file = GgufFile::open(str_cat("/proc/self/fd/", descriptor));
  ::close(descriptor);
  RAG_CHECK(file.ok());
  return load_gguf_tokenizer(**file);
}

std::shared_ptr<const Tokenizer> demo_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    const char* deps = std::getenv("RAG_DEPS_DIR");
    RAG_CHECK(deps != nullptr);
    const auto file = GgufFile::open(str_cat(deps, "/models/SmolLM2-135M-Instruct.Q4_1.gguf"));
    RAG_CHECK(file.ok());
    return *load_gguf_tokenizer(**file);
  }();
  return tokenizer;
}

std::string random_bytes(std::mt19937_64& random, size_t n_parts) {
  std::string text;
  for (size_t i = 0; i < n_parts; ++i) {
    switch (random() % 5) {
      case 0:
        text += static_cast<char>(random());
        break;
      case 1:
        text += static_cast<char>(0xC0 | random() % 64);  // a lead byte
        break;
      case 2:
        text += "ab '12\n\t<|"[random() % 10];
        break;
      case 3:
        append_utf8(text, 0x20 + random() % 0xD000);
        break;
      case 4:
        append_utf8(text, 0x10000 + random() % 0x20000);
        break;
    }
  }
  return text;
}

}  // namespace ragcache
