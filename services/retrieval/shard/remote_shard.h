#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "services/retrieval/shard/shard.h"

namespace ragcache::retrieval {

// A shard of another process. Calls fail at once while it is not connected; the channel connects
// again by itself.
class RemoteShard final : public Shard {
 public:
  explicit RemoteShard(const std::string& address);
  ~RemoteShard() override;

  void bind(const ShardBinding& binding, Duration timeout,
            Done<std::vector<IndexState>> done) override;
  void create(const IndexKey& key, std::shared_ptr<const IndexSpec> spec, Duration timeout,
              Done<IndexState> done) override;
  void drop(const IndexKey& key, Duration timeout, Done<IndexState> done) override;
  void apply(ChangeBatch batch, Duration timeout, Done<IndexState> done) override;
  void search(std::shared_ptr<const ShardQuery> query, Duration timeout, std::stop_token stop,
              Done<ShardHits> done) override;

 private:
  struct Stub;

  const std::unique_ptr<Stub> stub_;
};

}  // namespace ragcache::retrieval
