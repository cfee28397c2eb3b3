#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/weights/gguf.h"

namespace ragcache {

// Writes small GGUF files for tests: metadata and tensors in the order given. It checks nothing,
// so that a test can also write what the reader must reject.
class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the layout; the file says so only if the test adds the key

  void add_uint32(std::string_view key, uint32_t value) { begin(key, 4), put(metadata_, value); }
  void add_int32(std::string_view key, int32_t value) { begin(key, 5), put(metadata_, value); }
  void add_float(std::string_view key, float value) { begin(key, 6), put(metadata_, value); }
  void add_bool(std::string_view key, bool value) { begin(key, 7), put<uint8_t>(metadata_, value); }
  void add_uint64(std::string_view key, uint64_t value) { begin(key, 10), put(metadata_, value); }
  void add_string(std::string_view key, std::string_view value) {
    begin(key, 8), put_string(metadata_, value);
  }
  void add_strings(std::string_view key, std::span<const std::string> values) {
    begin(key, 9), put<uint32_t>(metadata_, 8), put<uint64_t>(metadata_, values.size());
    for (const std::string& value : values) put_string(metadata_, value);
  }
  void add_int32s(std::string_view key, std::span<const int32_t> values) {
    begin(key, 9), put<uint32_t>(metadata_, 5), put<uint64_t>(metadata_, values.size());
    for (const int32_t value : values) put(metadata_, value);
  }
  // A value of any type number, its bytes as they are.
  void add_raw(std::string_view key, uint32_t type, std::string_view bytes) {
    begin(key, type), metadata_ += bytes;
  }

  void add_tensor(std::string_view name, std::span<const uint64_t> dimensions, uint32_t type,
                  std::string_view data) {
    add_tensor_entry(name, dimensions, type, data_.size());
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  }
  // A directory entry alone, for offsets that a test chooses.
  void add_tensor_entry(std::string_view name, std::span<const uint64_t> dimensions, uint32_t type,
                        uint64_t offset) {
    put_string(directory_, name), put<uint32_t>(directory_, dimensions.size());
    for (const uint64_t dimension : dimensions) put(directory_, dimension);
    put(directory_, type), put(directory_, offset);
    ++n_tensors_;
  }

  std::string bytes() const {
    std::string file = "GGUF";
    put(file, version), put(file, n_tensors_), put(file, n_keys_);
    file += metadata_;
    file += directory_;
    if (data_.empty()) return file;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  template <typename T>
  static void put(std::string& out, std::type_identity_t<T> value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  static void put(std::string& out, const T& value) requires std::is_arithmetic_v<T> {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  static void put_string(std::string& out, std::string_view value) {
    put<uint64_t>(out, value.size());
    out += value;
  }

 private:
  void begin(std::string_view key, uint32_t type) {
    put_string(metadata_, key);
    put(metadata_, type);
    ++n_keys_;
  }

  std::string metadata_;
  std::string directory_;
  std::string data_;
  uint64_t n_keys_ = 0;
  uint64_t n_tensors_ = 0;
};

}  // namespace ragcache
