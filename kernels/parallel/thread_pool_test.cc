#include "kernels/parallel/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <vector>

#include "gtest/gtest.h"

namespace ragcache::kernels {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceInEveryOneOfManyRounds) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 500; ++round) {
      const int tasks = round % 17;
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<bool> thread_in_range = true;
      pool.run(tasks, [&](int64_t task, int thread) {
        ++runs[task];
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      for (int task = 0; task < tasks; ++task) ASSERT_EQ(runs[task], 1) << "round " << round;
      ASSERT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPool, MakesTheTasksWritesVisibleToTheCaller) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000);
  for (int64_t round = 1; round <= 200; ++round) {
    pool.run(10, [&](int64_t task, int) {
      for (int64_t i = task * 100; i < (task + 1) * 100; ++i) values[i] += i * round;
    });
  }
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[i], i * 200 * 201 / 2);
}

// What a thread wrote in one run() is in its core's caches in the next.
TEST(ThreadPool, GivesAThreadTheSameTasksWheneverAllThreadsCome) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> inside = 0;
    std::vector<int> threads(3 * kThreads, -1);
    pool.run(3 * kThreads, [&](int64_t task, int thread) {
      threads[task] = thread;
      // A thread's last tasks first; then it waits for the others to have begun with theirs.
      if (task % 3 != 0) return;
      ++inside;
      while (inside < kThreads) _mm_pause();
    });
    for (int task = 0; task < 3 * kThreads; ++task) ASSERT_EQ(threads[task], task / 3) << task;
  }
}

// Holds the thread that gets SIGUSR1 until `released`, as a machine with too few cores would.
std::atomic<bool> held, released;
void hold(int) {
  held = true;
  while (!released) _mm_pause();
}

TEST(ThreadPool, DoesTheWorkOfAHelperThatDoesNotCome) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "signals come late there";
#endif
  ThreadPool pool(2);
  pthread_t helper{};
  std::atomic<int> inside = 0;
  pool.run(2, [&](int64_t, int thread) {
    if (thread == 1) helper = pthread_self();
    ++inside;
    while (inside < 2) _mm_pause();
  });
  std::signal(SIGUSR1, hold);
  ASSERT_EQ(pthread_kill(helper, SIGUSR1), 0);
  while (!held) _mm_pause();
  std::vector<int> runs(100);
  pool.run(100, [&](int64_t task, int thread) { runs[task] += thread == 0; });
  EXPECT_EQ(runs, std::vector<int>(100, 1));
  released = true;
}

}  // namespace
}  // namespace ragcache::kernels
