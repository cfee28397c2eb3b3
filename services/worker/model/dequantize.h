#pragma once

#include <cstdint>
#include <span>

#include "common/weights/gguf.h"

namespace ragcache::worker {

// Bytes of `elements` values of a type; `elements` must be a multiple of its block (1 or 32).
int64_t storage_bytes(GgmlType type, int64_t elements);
int64_t elements_per_block(GgmlType type);

// Turns whole blocks of a GGUF tensor into floats.
// REQUIRES: values.size() is a multiple of the type's block, bytes.size() its storage_bytes().
void dequantize(GgmlType type, std::span<const uint8_t> bytes, std::span<float> values);

}  // namespace ragcache::worker
