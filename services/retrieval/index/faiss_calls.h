#pragma once

// What every unit that calls Faiss needs: its exceptions stop here, and its OpenMP stays at the
// calling thread.

#include <faiss/impl/io.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ragcache::retrieval {

// OpenMP's thread count belongs to the calling thread; whoever else computes on this thread later
// finds its own again. Two threads that wait for each other by spinning lose more than they gain
// on a busy machine.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  const int before_;
};

template <typename Function>
absl::Status call_faiss(absl::string_view action, Function&& function) {
  const OneOpenMpThread one_thread;
  try {
    function();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("vector index: no memory to ", action));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("vector index: cannot ", action, ": ", error.what()));
  }
}

class StringWriter : public faiss::IOWriter {
 public:
  size_t operator()(const void* data, size_t size, size_t count) override {
    bytes.append(static_cast<const char*>(data), size * count);
    return count;
  }

  std::string bytes;
};

// Reads from bytes whose lengths are not to be trusted: stops at their end.
class SpanReader : public faiss::IOReader {
 public:
  explicit SpanReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t operator()(void* data, size_t size, size_t count) override {
    if (size == 0) return 0;
    const size_t items = std::min(count, bytes_.size() / size);
    if (items > 0) std::memcpy(data, bytes_.data(), items * size);
    bytes_ = bytes_.subspan(items * size);
    return items;
  }

  // False, having read nothing, if there are fewer.
  template <typename T>
  bool read(std::vector<T>& values, size_t count) {
    if (count > bytes_.size() / sizeof(T)) return false;
    values.resize(count);
    return (*this)(values.data(), sizeof(T), count) == count;
  }
  bool read(uint64_t& value) { return (*this)(&value, sizeof(value), 1) == 1; }

  std::span<const uint8_t> rest() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

template <typename T>
void write_values(faiss::IOWriter& writer, const std::vector<T>& values) {
  if (!values.empty()) writer(values.data(), sizeof(T), values.size());
}

inline void write_number(faiss::IOWriter& writer, uint64_t value) {
  writer(&value, sizeof(value), 1);
}

}  // namespace ragcache::retrieval
