#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/store/file.h"
#include "services/retrieval/shard/shard.h"

namespace ragcache::retrieval {

// A shard of this process: its indexes in memory, and in a folder two files for each: .spec says
// what the index belongs to and how it is made, .index holds its vectors and how far it has come.
// The latter is written whole or not at all, after every so many changes and by save(); the router
// replays what came after. A file that cannot be used is set aside as *.bad, and the index begins
// anew.
//
// Changes are made one after another, by a thread of the shard; searches go on meanwhile.
class LocalShard final : public Shard {
 public:
  struct Options {
    std::string folder;
    uint32_t shard = 0;
    uint32_t shards = 1;
    // What to do if the router's store is not the one that the vectors are of: begin anew, where
    // router and shard are one process, or refuse, where they may have been wired up wrongly.
    bool replace_foreign = false;
  };

  // Loads the indexes. UNAVAILABLE: the folder is in use elsewhere. FAILED_PRECONDITION: it is that
  // of another shard. `search_pool` outlives the shard.
  static absl::StatusOr<std::unique_ptr<LocalShard>> open(const Options& options,
                                                          boost::asio::thread_pool& search_pool);
  // Ends what is under way. No call may be open or come.
  ~LocalShard() override;

  void bind(const ShardBinding& binding, Duration timeout,
            Done<std::vector<IndexState>> done) override;
  void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
              Done<IndexState> done) override;
  void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) override;
  void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) override;
  void search(std::shared_ptr<const ShardQuery> query, Duration timeout, std::stop_token stop,
              Done<ShardHits> done) override;

  // Saves the indexes that changed, after the changes under way. Blocks.
  void save();

  // Whether a router has said that this is its shard.
  bool is_bound() const { return bound_; }
  uint64_t vectors() const;

 private:
  struct Index;

  LocalShard(const Options& options, FolderLock lock, boost::asio::thread_pool& search_pool);

  absl::Status load();
  absl::Status load_index(const IndexKey& key);
  std::string path_of(const IndexKey& key, const char* suffix) const;
  std::shared_ptr<Index> find(const IndexKey& key) const;
  absl::Status check_binding(const ShardBinding& binding);
  // Those below run on write_pool_.
  absl::StatusOr<IndexState> make(const IndexKey& key, std::shared_ptr<const IndexSpec> spec);
  void erase(const IndexKey& key);
  absl::StatusOr<IndexState> change(const ChangeBatch& batch);
  void save(Index& index);

  // Constant after open().
  const Options options_;
  const FolderLock lock_;
  boost::asio::thread_pool& search_pool_;

  std::atomic<bool> bound_ = false;

  mutable std::mutex mutex_;
  std::optional<Digest> store_id_;                      // guarded by mutex_; of the vectors
  std::map<IndexKey, std::shared_ptr<Index>> indexes_;  // guarded by mutex_

  boost::asio::thread_pool write_pool_{1};
};

}  // namespace ragcache::retrieval
