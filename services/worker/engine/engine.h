#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "services/worker/engine/iteration_cost.h"
#include "services/worker/engine/messages.h"
#include "services/worker/engine/request.h"
#include "services/worker/engine/sampler.h"
#include "services/worker/kv/block_pool.h"
#include "services/worker/kv/segment_table.h"

namespace ragcache::worker {

class LlamaModel;
struct ForwardBatch;
struct Metrics;

// The engine's core: takes commands, runs one iteration at a time, tells events. Plain and
// single-threaded; EngineActor gives it a thread.
//
// Ledger: free + reserved + cached = total at all times. A Generate moves its reservation from
// free to reserved, a finished segment moves its blocks from reserved to cached, a Drop moves them
// to free, the terminal event returns what is left. Blocks are taken from the pool only inside a
// reservation, so taking one cannot fail.
class Engine {
 public:
  // Of one iteration.
  struct Limits {
    uint32_t max_batch_tokens;  // decodes first
    // Prompts are cut so that an iteration that streams wait for ends in this time; one that only
    // prefills may take kAloneFactor times as long.
    Duration max_time = std::chrono::milliseconds(200);
  };
  using Clock = std::function<TimePoint()>;

  // `model` must outlive it; batches of limits.max_batch_tokens must fit it.
  Engine(LlamaModel& model, BlockPool pool, Limits limits, Metrics& metrics,
         Clock now = steady_now);
  ~Engine();

  void take(Command command);
  // Runs one iteration if a request can go on, then says how the blocks are if that changed.
  // False if nothing was there to run.
  bool step();
  // Events since the last call, in order.
  std::vector<Event> take_events();

  bool has_requests() const { return !requests_.empty(); }

  // Aborts unless the counts agree with what requests and segments hold. O(all).
  void check_invariants() const;

 private:
  using Requests = std::vector<std::unique_ptr<Request>>;

  void handle(OpenStream open);
  void handle(CloseStream close);
  void handle(Generate command);
  void handle(const Cancel& cancel);
  void handle(const Grow& grow);
  void handle(const Preempt& preempt);
  void handle(const Drop& drop);

  // Why the command cannot run as the engine is.
  absl::Status check_state(const Generate& command) const;
  void fail(const std::string& request_id, Failure code, std::string message,
            std::vector<SegmentId> missing = {});
  void tell(decltype(Event::body) body);
  void tell_load();

  Requests::iterator find(const std::string& request_id);
  // Unpins, returns blocks, forgets. The caller tells the terminal event.
  void release(Requests::iterator it);
  void release_all();

  // Moves over parts that are cached, where the request stands before such a part.
  void adopt_cached(Request& request);
  // The next part is complete: it becomes a cached segment.
  void segment_computed(Request& request);
  // The part is cached: its blocks leave the request's reservation.
  void leave_reservation(Request& request, const Request::Part& part, uint32_t blocks);
  // Gives positions up to `end` slots as far as the reservation goes; returns how far.
  size_t extend_slots(Request& request, size_t end);
  // Asks for blocks before the reservation runs out.
  void ask_for_blocks(Request& request);

  struct Planned {
    Request* request;
    size_t tokens;  // new ones
  };
  std::vector<Planned> plan();
  // Runs them, and learns how long they take.
  void run(std::span<const Planned> planned);
  // Seconds that an iteration may take.
  double time_limit(bool decodes) const;
  // The request's next token is known. True if that ends it.
  bool advance(Request& request, std::span<const float> logits);
  void finish(Request& request, FinishReason reason);

  uint32_t blocks_of(size_t tokens) const;
  uint32_t free_blocks() const;

  // Constant after construction.
  LlamaModel& model_;
  const Limits limits_;
  Metrics& metrics_;
  const Clock now_;

  BlockPool pool_;
  SegmentTable segments_;
  Requests requests_;  // in command order
  uint32_t reserved_ = 0;
  Sampler sampler_;
  IterationCost cost_;
  std::unique_ptr<ForwardBatch> batch_;

  std::optional<uint64_t> stream_;
  uint64_t last_command_ = 0;
  bool load_due_ = false;
  std::vector<Event> events_;
};

}  // namespace ragcache::worker
