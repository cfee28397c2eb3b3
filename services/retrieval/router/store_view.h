#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/retrieval/documents/document_store.h"
#include "services/retrieval/shard/shard.h"

namespace ragcache::retrieval {

// What the router's actors read of the document store. Calls return at once; each ends by calling
// `done` once, on any thread. Any thread.
class StoreView {
 public:
  template <typename T>
  using Done = Shard::Done<T>;

  struct Documents {
    std::vector<std::optional<DocumentRecord>> records;  // of each vector; empty: it is gone
    uint64_t sequence = 0;  // no later than this is the state that they are of
  };

  virtual ~StoreView() = default;

  // As DocumentStore::changes_after(), a bounded number of them.
  virtual void read_changes(const IndexKey& key, const LogPosition& position, const LogPart& part,
                            Done<ChangeBatch> done) = 0;
  virtual void find_documents(int64_t corpus, std::vector<int64_t> vectors,
                              Done<Documents> done) = 0;
};

}  // namespace ragcache::retrieval
