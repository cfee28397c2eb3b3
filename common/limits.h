#pragma once

#include <cstdint>

// Bounds that several services check.
namespace ragcache {

// Documents that one request may search for or name.
inline constexpr uint32_t kMaxRequestDocuments = 1000;

}  // namespace ragcache
