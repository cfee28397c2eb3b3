#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "services/retrieval/config.h"

namespace ragcache::retrieval {

// The retrieval service of one process, in one of its roles: a router with the models, the
// documents and connections to shards; a shard; or a router with shards of its own, which is all of
// it. Made and stopped by one thread.
class App {
 public:
  // Listens when it returns; with all in one process it has its shards up to date by then. Errors
  // name what is wrong and where: an option, a folder that cannot be written or is in use, a
  // damaged database, a missing or unfit model, an address in use.
  static absl::StatusOr<std::unique_ptr<App>> start(Config config, metrics::Registry registry);
  ~App();

  // Ends open calls, saves the indexes. Idempotent.
  void stop();

  // As clients dial it.
  const std::string& address() const;
  // UNAVAILABLE says what is missing. Any thread.
  absl::Status ready() const;
  // What the standard health service answers.
  void set_serving(bool serving);

 private:
  struct Parts;

  explicit App(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace ragcache::retrieval
