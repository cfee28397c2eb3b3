#include "common/random.h"

#include <openssl/rand.h>

#include "common/check.h"

namespace ragcache {

uint64_t random_bits() {
  uint64_t bits;
  RAG_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&bits), sizeof(bits)) == 1);
  return bits;
}

}  // namespace ragcache
