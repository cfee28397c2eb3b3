#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/actor/actor.h"
#include "common/ids.h"
#include "ragcache/worker/v1/worker.pb.h"
#include "services/controller/messages.h"

namespace ragcache::fakes {

// The next token of any context, and so the answer of any prompt: a plain function, so that every
// way to an answer (cached, preempted, sent again) can be checked against it. As penalties would,
// it depends on where in the context the answer begins.
struct FakeModel {
  static constexpr uint32_t kEnd = 2;
  struct Token {
    uint32_t id;
    float logprob;
  };
  static Token next(const std::vector<uint32_t>& context, size_t answer_begin, uint64_t seed);
  // Ends before a stop token.
  static std::vector<Token> answer(std::vector<uint32_t> prompt, uint64_t seed, uint32_t max_tokens,
                                   const std::vector<uint32_t>& stop_tokens);
};

// A worker group in simulation: keeps the segment protocol to the letter and aborts when the
// controller does not. Works one small random step at a time.
class FakeWorker {
 public:
  using Group =
      Address<controller::WorkerConnected, controller::WorkerEvent, controller::WorkerLost>;

  struct Connect {};
  // The process dies: what it had is gone, what it would still say is never said.
  struct Die {};
  // Another controller has taken over: refuses the stream, with this word.
  struct Refuse {};
  static constexpr const char* kRefusal = "another controller has taken over";

  FakeWorker(uint64_t connection, uint32_t total_blocks, Group group, ActorRef<FakeWorker> self);

  void handle(Connect connect, ActorContext& context);
  void handle(worker::v1::ExecuteRequest command, ActorContext& context);
  void handle(Die die, ActorContext& context);
  void handle(Refuse refuse, ActorContext& context);

  struct Step {};
  void handle(Step step, ActorContext& context);

  // Loses a random unpinned segment without telling: what the controller expects is missing.
  struct Forget {};
  void handle(Forget forget, ActorContext& context);

  static constexpr uint32_t kBlockTokens = 4;
  static constexpr uint32_t kContextTokens = 400;

 private:
  struct Segment {
    std::string parent;
    std::vector<uint32_t> tokens;
    uint32_t pins = 0;
  };
  struct Running {
    worker::v1::Generate generate;
    std::vector<std::string> pinned;
    size_t next_segment = 0;
    uint32_t segment_blocks = 0;  // reserved for segments still to compute
    uint32_t private_blocks = 0;
    uint32_t cached_tokens = 0;
    std::vector<uint32_t> context;
    uint32_t generated = 0;
    bool asked = false;
    bool first_told = false;
  };

  static uint32_t blocks_of(size_t tokens) {
    return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  }
  void generate(const worker::v1::Generate& command);
  void advance(Running& request, ActorContext& context);
  void end(const std::string& request_id);
  void tell(worker::v1::ExecuteResponse event);
  void tell_load();
  uint32_t reserved_blocks() const;
  uint32_t cached_blocks() const;

  const uint64_t connection_;
  const uint32_t total_blocks_;
  const Group group_;
  const ActorRef<FakeWorker> self_;

  std::map<std::string, Segment> segments_;
  std::map<std::string, Running> running_;
  uint64_t last_command_ = 0;
  uint64_t events_ = 0;
  bool stepping_ = false;
  bool refuses_ = false;
};

}  // namespace ragcache::fakes
