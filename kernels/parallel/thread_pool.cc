#include "kernels/parallel/thread_pool.h"

#include <immintrin.h>

#include <algorithm>

#include "common/check.h"

namespace ragcache::kernels {
namespace {

// About 20 us of pauses: longer than the gap between two ops of a layer, far shorter than the
// gap between two requests.
constexpr int kSpins = 400;
constexpr uint32_t kFlushToZero = 0x8000;
constexpr uint32_t kDenormalsAreZero = 0x0040;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  RAG_CHECK(threads >= 1);
  for (int thread = 1; thread < threads; ++thread) {
    helpers_.emplace_back([this, thread] { help(thread); });
  }
}

int ThreadPool::default_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(int64_t tasks, absl::FunctionRef<void(int64_t task, int thread)> body) {
  if (tasks <= 1 || helpers_.empty()) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  busy_helpers_.store(static_cast<int32_t>(helpers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  for (int spin = 0; busy_helpers_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      _mm_pause();
    } else if (int32_t busy = busy_helpers_.load(std::memory_order_acquire); busy != 0) {
      busy_helpers_.wait(busy, std::memory_order_acquire);
    }
  }
}

void ThreadPool::work(int thread) {
  for (;;) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    (*body_)(task, thread);
  }
}

void ThreadPool::help(int thread) {
  ScopedFlushDenormals flush;
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; generation_.load(std::memory_order_acquire) == seen; ++spin) {
      if (spin < kSpins) {
        _mm_pause();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    // run() publishes the next generation only after every helper left this one.
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    work(thread);
    if (busy_helpers_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_helpers_.notify_all();
  }
}

ScopedFlushDenormals::ScopedFlushDenormals() : saved_(_mm_getcsr()) {
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}

ScopedFlushDenormals::~ScopedFlushDenormals() { _mm_setcsr(saved_); }

}  // namespace ragcache::kernels
