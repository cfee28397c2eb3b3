#include "common/actor/thread_runtime.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <random>
#include <thread>

namespace ragcache {

// Shared by the mailboxes: a message may be sent from elsewhere after the runtime is gone.
struct ThreadRuntime::Pool {
  boost::asio::io_context context;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{
      context.get_executor()};
  std::vector<std::thread> threads;
};

namespace {

// Asio wants handlers that can be copied; a shared task can.
auto shared(Mailbox::Task task) {
  return [task = std::make_shared<Mailbox::Task>(std::move(task))] { (*task)(); };
}

template <typename Pool>
class StrandMailbox : public Mailbox {
 public:
  explicit StrandMailbox(std::shared_ptr<Pool> pool)
      : pool_(std::move(pool)),
        strand_(boost::asio::make_strand(pool_->context)),
        random_(std::random_device{}()) {}

  void post(Task task) override {
    if (pool_->context.stopped()) return;
    boost::asio::post(strand_, shared(std::move(task)));
  }

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
  const std::shared_ptr<Pool> pool_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  std::mt19937_64 random_;  // tasks of this mailbox run one at a time
};

}  // namespace

ThreadRuntime::ThreadRuntime(int threads) : pool_(std::make_shared<Pool>()) {
  RAG_CHECK(threads >= 1);
  for (int i = 0; i < threads; ++i) {
    pool_->threads.emplace_back([pool = pool_.get()] { pool->context.run(); });
  }
}

ThreadRuntime::~ThreadRuntime() { stop(); }

void ThreadRuntime::stop() {
  if (pool_->threads.empty()) return;
  pool_->context.stop();
  for (std::thread& thread : pool_->threads) thread.join();
  pool_->threads.clear();
  destroy_actors();
  // Waiting messages hold mailboxes, which hold the pool: with no actor left they come to nothing.
  pool_->work.reset();
  pool_->context.restart();
  pool_->context.poll();
  pool_->context.stop();
}

std::unique_ptr<Mailbox> ThreadRuntime::make_mailbox() {
  return std::make_unique<StrandMailbox<Pool>>(pool_);
}

}  // namespace ragcache
