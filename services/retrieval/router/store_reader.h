#pragma once

#include <boost/asio/thread_pool.hpp>

#include "services/retrieval/router/store_view.h"

namespace ragcache::retrieval {

// The document store, read on threads of its own for changes and on those of searches for
// documents. Calls must have ended before it goes.
class StoreReader final : public StoreView {
 public:
  // Changes read at once, of all shards together.
  static constexpr uint32_t kChangesMax = 512;

  StoreReader(DocumentStore& store, boost::asio::thread_pool& search_pool)
      : store_(store), search_pool_(search_pool) {}
  ~StoreReader() override { change_pool_.join(); }

  void read_changes(const IndexKey& key, const LogPosition& position, const LogPart& part,
                    Done<ChangeBatch> done) override;
  void find_documents(int64_t corpus, std::vector<int64_t> vectors, Done<Documents> done) override;

 private:
  DocumentStore& store_;
  boost::asio::thread_pool& search_pool_;
  boost::asio::thread_pool change_pool_{1};
};

}  // namespace ragcache::retrieval
