#include "common/actor/actor.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "common/actor/sim_runtime.h"
#include "common/actor/thread_runtime.h"

namespace ragcache {
namespace {

struct Note {
  int sender;
  int number;
};
struct Ask {
  Address<std::vector<Note>> reply;
};
struct Stop {};

class Notebook {
 public:
  void handle(Note note, ActorContext&) { notes_.push_back(note); }
  void handle(Ask ask, ActorContext&) { ask.reply.send(notes_); }
  void handle(Stop, ActorContext& context) { context.stop(); }

 private:
  std::vector<Note> notes_;
};

struct Go {
  int count;
};

class Writer {
 public:
  Writer(int id, Address<Note> notebook, ActorRef<Writer> self)
      : id_(id), notebook_(std::move(notebook)), self_(self) {}

  void handle(Go go, ActorContext&) {
    notebook_.send(Note{id_, next_++});
    if (go.count > 1) self_.send(Go{go.count - 1});
  }

 private:
  const int id_;
  const Address<Note> notebook_;
  const ActorRef<Writer> self_;
  int next_ = 0;
};

Address<std::vector<Note>> collect_into(std::vector<Note>* notes) {
  return Address<std::vector<Note>>::of_functions(
      [notes](std::vector<Note> result) { *notes = std::move(result); });
}

std::vector<Note> simulate(uint64_t seed) {
  SimRuntime runtime(seed);
  auto notebook = runtime.spawn<Notebook>();
  for (int writer = 0; writer < 3; ++writer) {
    runtime.spawn<Writer>(writer, Address<Note>(notebook)).send(Go{20});
  }
  runtime.run(10000);
  std::vector<Note> notes;
  notebook.send(Ask{collect_into(&notes)});
  runtime.run(10);
  return notes;
}

std::vector<int> senders(const std::vector<Note>& notes) {
  std::vector<int> ids;
  for (const Note& note : notes) ids.push_back(note.sender);
  return ids;
}

TEST(SimRuntime, KeepsOrderPerPairAndInterleavesPairsBySeed) {
  const std::vector<Note> notes = simulate(1);
  ASSERT_EQ(notes.size(), 60u);
  int next[3] = {};
  for (const Note& note : notes) EXPECT_EQ(note.number, next[note.sender]++);
  EXPECT_EQ(senders(notes), senders(simulate(1)));
  EXPECT_NE(senders(notes), senders(simulate(2)));
}

TEST(SimRuntime, TimersFireInVirtualTime) {
  SimRuntime runtime(7, Duration(0));
  auto notebook = runtime.spawn<Notebook>();
  notebook.send_after(std::chrono::hours(2), Note{2, 0});
  notebook.send_after(std::chrono::hours(1), Note{1, 0});
  EXPECT_EQ(runtime.run(10), 2u);
  EXPECT_EQ(runtime.now().time_since_epoch(), std::chrono::hours(2));
  std::vector<Note> notes;
  notebook.send(Ask{collect_into(&notes)});
  runtime.run(10);
  EXPECT_EQ(senders(notes), (std::vector<int>{1, 2}));
}

TEST(Actor, TakesNoMessageAfterItStopped) {
  SimRuntime runtime(3, Duration(0));
  auto notebook = runtime.spawn<Notebook>();
  std::vector<Note> notes = {{9, 9}};
  notebook.send(Stop{});
  notebook.send(Ask{collect_into(&notes)});
  runtime.run(10);
  EXPECT_EQ(senders(notes), (std::vector<int>{9}));
}

TEST(ThreadRuntime, HandlesOneMessageAtATimeInOrderPerSender) {
  constexpr int kWriters = 8;
  constexpr int kNotes = 2000;
  ThreadRuntime runtime(4);
  auto notebook = runtime.spawn<Notebook>();
  for (int writer = 0; writer < kWriters; ++writer) {
    runtime.spawn<Writer>(writer, Address<Note>(notebook)).send(Go{kNotes});
  }
  std::vector<Note> notes;
  while (notes.size() < kWriters * kNotes) {
    std::promise<std::vector<Note>> promise;
    notebook.send(Ask{Address<std::vector<Note>>::of_functions(
        [&](std::vector<Note> result) { promise.set_value(std::move(result)); })});
    notes = promise.get_future().get();
  }
  int next[kWriters] = {};
  for (const Note& note : notes) EXPECT_EQ(note.number, next[note.sender]++);
}

struct Remember {
  Address<Note> other;
};

// Refers to whatever it was told, and says when it is gone.
class Holder {
 public:
  explicit Holder(std::shared_ptr<int> alive) : alive_(std::move(alive)) {}
  void handle(Remember remember, ActorContext&) { other_ = remember.other; }
  void handle(Note, ActorContext&) {}

 private:
  std::shared_ptr<int> alive_;
  Address<Note> other_;
};

TEST(ThreadRuntime, EndsActorsThatReferToOneAnother) {
  auto runtime = std::make_unique<ThreadRuntime>(2);
  auto alive = std::make_shared<int>();
  auto first = runtime->spawn<Holder>(alive);
  auto second = runtime->spawn<Holder>(alive);
  first.send(Remember{second});
  second.send(Remember{first});
  first.send_after(std::chrono::hours(1), Note{});
  runtime.reset();
  EXPECT_EQ(alive.use_count(), 1);
  first.send(Note{});  // to nobody
}

}  // namespace
}  // namespace ragcache
