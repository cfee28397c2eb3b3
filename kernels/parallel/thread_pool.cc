#include "kernels/parallel/thread_pool.h"

#include <immintrin.h>

#include <algorithm>

#include "common/check.h"

namespace ragcache::kernels {
namespace {

// A thread that waits pauses so often, 5 to 20 us, as long as most gaps between two ops of a layer;
// then offers its core to others so often, some 200 us, as long as a task of a thread that is
// behind; then sleeps, as a core that has slept may need as long to wake.
constexpr int kPauses = 400;
constexpr int kYields = 400;
constexpr uint32_t kOpen = 1u << 31;  // of the door
constexpr uint32_t kFlushToZero = 0x8000;
constexpr uint32_t kDenormalsAreZero = 0x0040;

// Waits until `word` may no longer be `old`; `turn` counts from 0.
void await(const std::atomic<uint32_t>& word, uint32_t old, int turn) {
  if (turn < kPauses) {
    _mm_pause();
  } else if (turn < kPauses + kYields) {
    std::this_thread::yield();
  } else {
    word.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(std::max(threads, 1)) {
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
  for (int thread = 0; thread < threads(); ++thread) {
    Share& share = shares_[thread];
    share.begin = tasks * thread / threads();
    share.left.store(tasks * (thread + 1) / threads() - share.begin, std::memory_order_relaxed);
  }
  door_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  uint32_t inside = door_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int turn = 0; inside != 0; ++turn) {
    await(door_, inside, turn);
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
  for (int other = 0; other < threads(); ++other) {
    Share& share = shares_[(thread + other) % threads()];
    for (;;) {
      const int64_t left = share.left.fetch_sub(1, std::memory_order_relaxed);
      if (left <= 0) break;
      (*body_)(share.begin + left - 1, thread);
    }
  }
}

void ThreadPool::help(int thread) {
  ScopedFlushDenormals flush;
  uint32_t seen = 0;
  for (;;) {
    for (int turn = 0; generation_.load(std::memory_order_acquire) == seen; ++turn) {
      await(generation_, seen, turn);
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
