#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "services/worker/engine/iteration_cost.h"
#include "services/worker/engine/messages.h"
#include "services/worker/engine/request.h"
#include "services/worker/engine/sampler.h"
#include "services/worker/kv/block_pool.h"
#include "services/worker/kv/host_arena.h"
#include "services/worker/kv/segment_table.h"
#include "services/worker/kv/transfer.h"

namespace ragcache::worker {

class LlamaModel;
struct ForwardBatch;
struct Metrics;

// The engine's core: takes commands, runs one iteration at a time, tells events. Plain and
// single-threaded; EngineActor gives it a thread.
//
// Ledger: free + reserved + cached = total at all times, and free + cached = total on the host. The
// counts move when a command is taken: a Generate moves its reservation from free to reserved, a
// finished segment moves its blocks from reserved to cached, a Drop moves them to free, the
// terminal event returns what is left; a Replicate takes blocks on the host. Copies lag behind.
// Blocks of the device that a transfer still uses are free in the count and not yet in the pool: a
// request waits for them. Blocks of the host are given away at once, for transfers are done in
// order.
class Engine {
 public:
  // Of one iteration.
  struct Limits {
    uint32_t max_batch_tokens;  // decodes first
    // Prompts are cut so that an iteration that streams wait for ends in this time; one that only
    // prefills may take kAloneFactor times as long.
    Duration max_time = std::chrono::milliseconds(200);
  };
  // Which copies have their checksums compared when they are loaded.
  enum class Verify { kFirst, kAlways, kOff };
  // When each layer of a request's load was copied, and when the computation came to it and could
  // go on. Of a load that ended before the request was computed the last two are empty.
  struct LoadTrace {
    uint64_t bytes;
    TimePoint start, end;
    std::vector<TimePoint> copied, reached, read;  // [n_layers]
  };
  // The host tier. What it refers to outlives the engine.
  struct Host {
    HostArena& arena;
    TransferQueue& transfers;
    Verify verify = Verify::kAlways;
    double load_bytes_per_second = 1e9;                  // measured
    std::function<void(const LoadTrace&)> on_load = {};  // for tests and benches
  };
  using Clock = std::function<TimePoint()>;

  // `model` must outlive it; batches of limits.max_batch_tokens must fit it.
  Engine(LlamaModel& model, BlockPool pool, Limits limits, Metrics& metrics, Clock now = steady_now,
         std::optional<Host> host = std::nullopt);
  ~Engine();

  void take(Command command);
  // Runs one iteration if a request can go on, then says how the blocks are if that changed.
  // False if nothing was there to run.
  bool step();
  // Events since the last call, in order.
  std::vector<Event> take_events();

  // Seconds that the prefill of so many tokens behind so many cached ones takes, now. Their KV may
  // be anything: blocks that are free lend themselves. RESOURCE_EXHAUSTED if too few are.
  // REQUIRES: no requests; at least one new token, and all inside the model's context.
  absl::StatusOr<double> time_prefill(uint32_t cached_tokens, uint32_t new_tokens);

  bool has_requests() const { return !requests_.empty(); }
  bool has_transfers() const { return !in_flight_.empty(); }

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
  void handle(const Replicate& replicate);

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

  // The request reads the segment from now on, which was there without it.
  void pin(Request& request, Request::Part& part, Segment& segment);
  // Moves over parts that are cached, where the request stands before such a part.
  void adopt_cached(Request& request);
  // Gives the next part's tokens the slots of `blocks`.
  void move_over(Request& request, const std::vector<int32_t>& blocks);
  // The part's KV is complete: it becomes a cached segment.
  void cache_part(Request& request, size_t index, bool loaded);
  // The part is cached: its blocks leave the request's reservation.
  void leave_reservation(Request& request, const Request::Part& part, uint32_t blocks,
                         bool loaded = false);
  // Gives positions up to `end` slots as far as the reservation goes; returns how far.
  size_t extend_slots(Request& request, size_t end);
  // Asks for blocks before the reservation runs out.
  void ask_for_blocks(Request& request);

  struct Planned {
    Request* request;
    size_t begin;
    size_t tokens;  // new ones, from `begin` on
  };
  class Planner;
  std::vector<Planned> plan();
  // Runs them as one batch, and learns how long they take.
  void run(std::span<const Planned> planned);
  // The model on batch_, beside the loads of `loading`. Adds the seconds that it waited for them.
  std::span<const float> forward(std::span<Request* const> loading, double& stalled);
  // Seconds that an iteration may take.
  double time_limit(bool decodes) const;
  // The request's next token is known. True if that ends it.
  bool advance(Request& request, std::span<const float> logits);
  void finish(Request& request, FinishReason reason);

  // The tiers (engine_tiers.cc).
  void drop_from_host(const SegmentId& id);
  // The copy is no good: tells so.
  void lose_host_copy(const SegmentId& id, const std::string& reason);
  std::shared_ptr<Transfer> submit(Transfer::Kind kind, std::vector<Transfer::Piece> pieces);
  // Takes blocks for the parts that are to be loaded and orders the load, unless blocks are
  // missing.
  void submit_load(Request& request);
  // The next part is still to be loaded.
  static bool waits_for_load(const Request& request);
  // Whether the rest of a load that has begun will be copied within so many seconds.
  bool hides(const Transfer& load, double seconds) const;
  // Moves over the parts that are being loaded: the request is computed while later layers come.
  void join_load(Request& request);
  // The request ends: its load keeps the blocks that it writes to.
  void abandon_load(Request& request);
  // Takes notice of transfers that have ended.
  void collect_transfers();
  void saved(const Transfer& transfer);
  void loaded(const Transfer& transfer, Request* request);

  uint32_t free_blocks() const;

  // Constant after construction.
  LlamaModel& model_;
  const Limits limits_;
  Metrics& metrics_;
  const Clock now_;
  const std::optional<Host> host_;

  BlockPool pool_;
  BlockNumbers host_blocks_;
  SegmentTable segments_;
  Requests requests_;  // in command order
  uint32_t reserved_ = 0;
  // A transfer that has not ended, and the device's blocks that it uses though their segment or
  // request has given them up.
  struct InFlight {
    std::shared_ptr<Transfer> transfer;
    Request* request;  // whose load it is; null: nobody's any more
    std::vector<int32_t> blocks;
  };
  std::deque<InFlight> in_flight_;  // in the order of submission; no erases
  uint64_t transfers_ = 0;
  double load_rate_;  // bytes a second
  uint64_t saved_bytes_ = 0;
  uint64_t loaded_bytes_ = 0;
  uint64_t damaged_segments_ = 0;
  Sampler sampler_;
  IterationCost cost_;
  std::unique_ptr<ForwardBatch> batch_;

  std::optional<uint64_t> stream_;
  uint64_t last_command_ = 0;
  bool load_due_ = false;
  std::vector<Event> events_;
};

}  // namespace ragcache::worker
