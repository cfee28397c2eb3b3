#pragma once

#include <cstdint>
#include <span>

#include "common/weights/tensor.h"

namespace ragcache::worker {

// Bytes of `elements` values of a type. REQUIRES: whole blocks.
int64_t storage_bytes(GgmlType type, int64_t elements);

// Turns whole blocks of a GGUF tensor into floats.
// REQUIRES: values.size() is a multiple of the type's block, bytes.size() its storage_bytes().
void dequantize(GgmlType type, std::span<const uint8_t> bytes, std::span<float> values);

}  // namespace ragcache::worker
