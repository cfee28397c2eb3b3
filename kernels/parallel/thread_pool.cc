#include "kernels/parallel/thread_pool.h"

#include <immintrin.h>

#include <algorithm>

#include "common/check.h"

namespace ragcache::kernels {
namespace {

// About 20 us of pauses: longer than the gap between two ops of a layer, far shorter than the
// gap between two requests.
constexpr int kSpins = 400;
constexpr uint32_t kOpen = 1u << 31;  // of the door
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
  door_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  uint32_t inside = door_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spin = 0; inside != 0; ++spin) {
    if (spin < kSpins) {
      _mm_pause();
    } else {
      door_.wait(inside, std::memory_order_acquire);
    }
    inside = door_.load(std::memory_order_acquire);
  }
}

bool ThreadPool::enter() {
  uint32_t door = door_.load(std::memory_order_acquire);
  while ((door & kOpen) != 0) {
    if (door_.compare_exchange_weak(door, door + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  if (door_.fetch_sub(1, std::memory_order_acq_rel) == 1) door_.notify_one();
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
    // Those that it slept through are over.
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    work(thread);
    leave();
  }
}

ScopedFlushDenormals::ScopedFlushDenormals() : saved_(_mm_getcsr()) {
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}

ScopedFlushDenormals::~ScopedFlushDenormals() { _mm_setcsr(saved_); }

}  // namespace ragcache::kernels
