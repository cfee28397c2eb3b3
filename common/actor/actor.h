#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/check.h"
#include "common/clock.h"

// Actors: plain classes with private state and `handle(Message, ActorContext&)` overloads. An actor
// handles one message at a time and asks its context, never the OS, for time, timers and
// randomness; so the same class runs on threads (ThreadRuntime) and in a seeded simulation
// (SimRuntime).
//
//   class Counter {
//    public:
//     void handle(Add add, ActorContext& context) { total_ += add.amount; }
//     void handle(Get get, ActorContext&) { get.reply.send(Total{total_}); }
//    ...
//   };
//   ActorRef<Counter> counter = runtime.spawn<Counter>();
//   counter.send(Add{3});
//
// Messages from one sender to one receiver arrive in order. A message to an actor that has stopped
// is dropped.
namespace ragcache {

class ActorContext;

// One actor's mailbox, as its runtime sees it. Tasks run one at a time, in order per sender.
class Mailbox {
 public:
  using Task = absl::AnyInvocable<void()>;

  virtual ~Mailbox() = default;
  virtual void post(Task task) = 0;
  virtual void post_after(Duration delay, Task task) = 0;
  virtual TimePoint now() const = 0;
  // REQUIRES: called from a task of this mailbox.
  virtual uint64_t random() = 0;
};

// The mailbox and the actor behind it. The actor lives until it stops; the mailbox until nobody
// refers to it.
class ActorCell {
 public:
  explicit ActorCell(std::unique_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  Mailbox& mailbox() { return *mailbox_; }

 private:
  friend class ActorContext;
  template <typename A>
  friend class ActorRef;
  friend class ActorRuntime;

  std::unique_ptr<Mailbox> mailbox_;
  std::shared_ptr<void> actor_;  // touched by tasks of the mailbox alone
};

// What an actor may ask for while it handles a message. Valid during that call only.
class ActorContext {
 public:
  explicit ActorContext(std::shared_ptr<ActorCell> cell) : cell_(std::move(cell)) {}

  TimePoint now() const { return cell_->mailbox_->now(); }
  uint64_t random() { return cell_->mailbox_->random(); }

  // Ends the actor once the current message is handled.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  template <typename A>
  friend class ActorRef;

  std::shared_ptr<ActorCell> cell_;
  bool stopped_ = false;
};

// Where messages of an actor of type A go. Copyable, usable from any thread.
template <typename A>
class ActorRef {
 public:
  ActorRef() = default;
  explicit ActorRef(std::shared_ptr<ActorCell> cell) : cell_(std::move(cell)) {}

  template <typename M>
  void send(M message) const {
    cell_->mailbox_->post([cell = cell_, message = std::move(message)]() mutable {
      deliver(cell, std::move(message));
    });
  }

  // Delivers after `delay`, unless nobody refers to the actor any more. A timer that has lost its
  // meaning is ignored by the receiver: timers carry what they were for.
  template <typename M>
  void send_after(Duration delay, M message) const {
    cell_->mailbox_->post_after(
        delay, [weak = std::weak_ptr(cell_), message = std::move(message)]() mutable {
          if (auto cell = weak.lock()) deliver(cell, std::move(message));
        });
  }

  explicit operator bool() const { return cell_ != nullptr; }

 private:
  template <typename M>
  static void deliver(const std::shared_ptr<ActorCell>& cell, M message) {
    if (cell->actor_ == nullptr) return;
    ActorContext context(cell);
    static_cast<A*>(cell->actor_.get())->handle(std::move(message), context);
    if (context.stopped()) cell->actor_.reset();
  }

  std::shared_ptr<ActorCell> cell_;
};

// Where some kinds of messages can be sent, whoever takes them: an actor, or a function at the
// edge of the actor world (a gRPC call, a test). The function runs on the sender's thread, so it
// only copies and posts.
template <typename... Messages>
class Address {
 public:
  Address() = default;

  template <typename A>
  Address(ActorRef<A> ref)  // NOLINT: an actor is an address
      : send_([ref](Messages message) { ref.send(std::move(message)); }...) {}

  static Address of_functions(std::function<void(Messages)>... functions) {
    Address address;
    address.send_ = std::make_tuple(std::move(functions)...);
    return address;
  }

  template <typename M>
  void send(M message) const {
    const auto& function = std::get<std::function<void(M)>>(send_);
    RAG_CHECK(function != nullptr);
    function(std::move(message));
  }

 private:
  std::tuple<std::function<void(Messages)>...> send_;
};

// Makes actors. What runs them is the subclass's choice. Thread safe.
class ActorRuntime {
 public:
  virtual ~ActorRuntime() = default;

  // The actor is made at once, on the caller's thread; `A`'s last constructor argument may be the
  // ActorRef<A> of itself.
  template <typename A, typename... Args>
  ActorRef<A> spawn(Args&&... args) {
    auto cell = std::make_shared<ActorCell>(make_mailbox());
    ActorRef<A> self(cell);
    if constexpr (std::is_constructible_v<A, Args..., ActorRef<A>>) {
      cell->actor_ = std::make_shared<A>(std::forward<Args>(args)..., self);
    } else {
      cell->actor_ = std::make_shared<A>(std::forward<Args>(args)...);
    }
    remember(cell);
    return self;
  }

 protected:
  virtual std::unique_ptr<Mailbox> make_mailbox() = 0;

  // Ends all actors, though they may refer to one another in circles.
  // REQUIRES: no task runs, nor will one.
  void destroy_actors();

 private:
  void remember(const std::shared_ptr<ActorCell>& cell);

  std::mutex mutex_;  // guards what follows
  std::vector<std::weak_ptr<ActorCell>> cells_;
  size_t prune_at_ = 1024;
};

}  // namespace ragcache
