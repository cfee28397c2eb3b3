#include "common/actor/thread_runtime.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <random>

namespace ragcache {

struct ThreadRuntime::Pool {
  explicit Pool(int threads) : threads(threads) {}
  boost::asio::thread_pool threads;
};

namespace {

using Strand = boost::asio::strand<boost::asio::thread_pool::executor_type>;

// The handlers that Asio stores must be copyable on this version's executors; a shared task is.
auto shared(Mailbox::Task task) {
  return [task = std::make_shared<Mailbox::Task>(std::move(task))] { (*task)(); };
}

class StrandMailbox : public Mailbox {
 public:
  explicit StrandMailbox(Strand strand)
      : strand_(std::move(strand)), random_(std::random_device{}()) {}

  void post(Task task) override { boost::asio::post(strand_, shared(std::move(task))); }

  void post_after(Duration delay, Task task) override {
    auto timer = std::make_shared<boost::asio::steady_timer>(strand_, delay);
    timer->async_wait(
        [timer, run = shared(std::move(task))](const boost::system::error_code& error) {
          if (!error) run();
        });
  }

  TimePoint now() const override { return steady_now(); }
  uint64_t random() override { return random_(); }

 private:
  Strand strand_;
  std::mt19937_64 random_;  // tasks of this mailbox run one at a time
};

}  // namespace

ThreadRuntime::ThreadRuntime(int threads) : pool_(std::make_shared<Pool>(threads)) {
  RAG_CHECK(threads >= 1);
}

ThreadRuntime::~ThreadRuntime() { stop(); }

void ThreadRuntime::stop() {
  pool_->threads.stop();
  pool_->threads.join();
}

std::unique_ptr<Mailbox> ThreadRuntime::make_mailbox() {
  return std::make_unique<StrandMailbox>(boost::asio::make_strand(pool_->threads.get_executor()));
}

}  // namespace ragcache
