#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace ragcache::kernels {

// The threads that one model computes on: the caller of run() and `threads - 1` helpers.
//
// Tasks are handed out one by one, so that uneven ones (causal attention, a tail of columns)
// balance. A forward pass enters run() some hundred times: helpers spin for a few microseconds
// before they sleep, which spares most wake-ups without holding a core from the other services. The
// caller waits for helpers that took a task, never for one that has not come yet: on a busy machine
// it does the work itself.
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

  // Calls body(task, thread) for every task in [0, tasks), thread in [0, threads()); returns when
  // all are done. The body must not throw.
  void run(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

 private:
  void help(int thread);
  void work(int thread);

  // True if run() has work now; the caller of enter() is then counted until leave().
  bool enter();
  void leave();

  // Written by run() before it opens the door, read by helpers after they entered.
  const absl::FunctionRef<void(int64_t, int)>* body_ = nullptr;
  int64_t tasks_ = 0;

  // Moves on with every run(): what idle helpers wait for.
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> next_task_{0};
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
