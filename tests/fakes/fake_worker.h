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

  // What outlives a stream, and of it what outlives the process.
  struct Memory {
    struct Segment {
      std::string parent;
      std::vector<uint32_t> tokens;
      uint32_t pins = 0;  // device: by requests
      uint64_t save = 0;  // host: the number of the copy that is not done yet, or 0
    };
    uint32_t device_blocks;
    uint32_t host_blocks;
    uint64_t load_bytes_per_second = 0;  // told, not kept to; 0: not measured
    // Segments may turn out gone or damaged without the controller's doing.
    bool forgetful = false;
    std::map<std::string, Segment> device;
    std::map<std::string, Segment> host;
    uint64_t saves = 0;
    uint64_t loads = 0;   // segments that were to be loaded
    uint64_t stream = 0;  // the connection of the current one
  };

  struct Connect {};
  // The process dies: of what it had only finished host copies are left, and what it would still
  // say is never said.
  struct Die {};
  // The stream breaks, the process lives.
  struct Break {};
  // Another controller has taken over: refuses the stream, with this word.
  struct Refuse {};
  static constexpr const char* kRefusal = "another controller has taken over";

  FakeWorker(uint64_t connection, std::shared_ptr<Memory> memory, Group group,
             ActorRef<FakeWorker> self);

  void handle(Connect connect, ActorContext& context);
  void handle(worker::v1::ExecuteRequest command, ActorContext& context);
  void handle(Die die, ActorContext& context);
  void handle(Break broken, ActorContext& context);
  void handle(Refuse refuse, ActorContext& context);

  struct Step {};
  void handle(Step step, ActorContext& context);

  // Loses a random unpinned segment of the device without telling: what the controller expects is
  // missing. REQUIRES: memory.forgetful.
  struct Forget {};
  void handle(Forget forget, ActorContext& context);
  // A bit of the host flips: the next load finds out. REQUIRES: memory.forgetful.
  struct Damage {};
  void handle(Damage damage, ActorContext& context);

  static constexpr uint32_t kBlockTokens = 4;
  static constexpr uint32_t kBlockBytes = 1000;
  static constexpr uint32_t kContextTokens = 400;

 private:
  using Segment = Memory::Segment;
  struct Running {
    worker::v1::Generate generate;
    std::vector<std::string> pinned;
    size_t next_segment = 0;
    std::vector<bool> to_load;    // of each segment
    uint32_t segment_blocks = 0;  // reserved for segments still to compute or load
    uint32_t private_blocks = 0;
    uint32_t cached_tokens = 0;
    uint32_t loaded_tokens = 0;
    std::vector<uint32_t> context;
    uint32_t generated = 0;
    bool asked = false;
    bool first_told = false;
  };
  struct Save {
    std::string id;
    uint64_t number;
  };

  static uint32_t blocks_of(size_t tokens) {
    return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
  }
  static uint32_t blocks_of(const std::map<std::string, Segment>& segments);
  static void check_leaf(const std::map<std::string, Segment>& segments, const std::string& id);
  // Whether no newer stream has been opened.
  bool is_current() const { return memory_->stream == connection_; }
  void tell_snapshot();
  void generate(const worker::v1::Generate& command);
  void replicate(const worker::v1::Replicate& command);
  void drop(const worker::v1::Drop& command);
  void advance(Running& request);
  void finish_segment(Running& request);
  void finish_save(size_t index);
  void end(const std::string& request_id);
  void tell(worker::v1::ExecuteResponse event);
  void tell_load();
  void go_on();
  uint32_t reserved_blocks() const;

  const uint64_t connection_;
  const std::shared_ptr<Memory> memory_;
  const Group group_;
  const ActorRef<FakeWorker> self_;

  std::map<std::string, Running> running_;
  std::vector<Save> saving_;
  bool damage_ = false;  // of the next load
  uint64_t last_command_ = 0;
  uint64_t events_ = 0;
  bool stepping_ = false;
  bool refuses_ = false;
};

}  // namespace ragcache::fakes
