#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace ragcache {

// Memory for large tables that are read at random places: on huge pages where the system has them
// for who asks (transparent_hugepage madvise or always), so that a lookup that misses the caches
// does not miss the TLB too. Small ones are as any.
template <typename T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t n) {
    if (n * sizeof(T) < kHugePage) return std::allocator<T>().allocate(n);
    const size_t bytes = (n * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = std::aligned_alloc(kHugePage, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
    return static_cast<T*>(memory);
  }

  void deallocate(T* memory, size_t n) {
    if (n * sizeof(T) < kHugePage) return std::allocator<T>().deallocate(memory, n);
    std::free(memory);
  }

  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr size_t kHugePage = 2 << 20;
};

}  // namespace ragcache
