#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "services/retrieval/config.h"

namespace ragcache::retrieval {

// The retrieval service of one process: models, corpus, gRPC server. Made and stopped by one
// thread.
class App {
 public:
  // Serves when it returns. Errors name what is wrong and where: a folder that cannot be written
  // or is in use, a damaged database, a missing or unfit model, an address in use.
  static absl::StatusOr<std::unique_ptr<App>> start(Config config, metrics::Registry registry);
  ~App();

  // Ends open calls, saves the index. Idempotent.
  void stop();

  // As clients dial it.
  const std::string& address() const;

 private:
  struct Parts;

  explicit App(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace ragcache::retrieval
