#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace ragcache::kernels {

// The threads that one model computes on: the caller of run() and `threads - 1` helpers.
//
// Each thread has a share of the tasks, neighbours in their order and the same ones in every run():
// ops that order their tasks by tokens find a token's values in the caches of the core that wrote
// them, which matters most where cores have no last-level cache in common. A share is done from its
// end, and who has done its own helps others, so that uneven tasks (causal attention) balance.
//
// A forward pass enters run() some hundred times: who waits spins for some microseconds, then
// offers its core to others for some more, and sleeps only after that. The caller waits for helpers
// that took a task, never for one that has not come yet: on a busy machine it does the work itself.
//
// REQUIRES: run() is entered by one thread at a time and not from inside a task.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  // One for each core.
  static int default_threads();
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls body(task, thread) for every task in [0, tasks), thread in [0, threads()), in any order;
  // returns when all are done. The body must not throw.
  void run(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

 private:
  void help(int thread);
  void work(int thread);

  // True if run() has work now; the caller of enter() is then counted until leave().
  bool enter();
  void leave();

  // Tasks [begin, begin + left) are left, or none.
  struct alignas(64) Share {
    int64_t begin = 0;
    std::atomic<int64_t> left{0};
  };

  // Written by run() before it opens the door, read by helpers after they entered.
  const absl::FunctionRef<void(int64_t, int)>* body_ = nullptr;
  std::vector<Share> shares_;  // [threads()]

  // Moves on with every run(): what idle helpers wait for.
  alignas(64) std::atomic<uint32_t> generation_{0};
  // Helpers inside run()'s work, and kOpen while more may enter.
  alignas(64) std::atomic<uint32_t> door_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;
};

// While alive, this thread's arithmetic treats denormal numbers as zero: they cost a hundred
// times a normal operation and carry nothing a model needs.
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals();
  ~ScopedFlushDenormals();
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace ragcache::kernels
