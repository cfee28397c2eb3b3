#pragma once

#include <grpcpp/alarm.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "common/rpc/server.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// Keeps a server's health service in step with the controller, which it asks every second. Runs on
// gRPC's threads, from construction to destruction.
class Readiness {
 public:
  // Both outlive it.
  Readiness(Services& services, RpcServer& server);
  ~Readiness();
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

 private:
  struct Question;

  void ask();  // REQUIRES: mutex_ held, no question open
  void take_answer(const grpc::Status& status);

  Services& services_;
  RpcServer& server_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable idle_;
  std::unique_ptr<Question> question_;
  std::unique_ptr<grpc::Alarm> alarm_;  // until the next question; else null
  bool stopping_ = false;
};

}  // namespace ragcache::gateway
