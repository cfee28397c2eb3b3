#pragma once

#include <cstddef>
#include <cstdint>

// Bounds that several services check.
namespace ragcache {

// Documents that one request may search for or name.
inline constexpr uint32_t kMaxRequestDocuments = 1000;

// Of a document that is stored.
inline constexpr size_t kMaxTitleBytes = 4 << 10;
inline constexpr size_t kMaxTextBytes = 2 << 20;

// That one request may have embedded.
inline constexpr int kMaxEmbeddingTexts = 2048;

}  // namespace ragcache
