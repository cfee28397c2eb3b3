#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/controller/config.h"
#include "services/controller/messages.h"
#include "services/controller/metrics.h"
#include "services/controller/policy/policy.h"
#include "services/controller/policy/prefill_cost.h"
#include "services/controller/schedule/ledger.h"
#include "services/controller/tree/knowledge_tree.h"

namespace ragcache::controller {

// Prompt tokens whose KV was there, by tier.
struct CachedTokens {
  uint32_t device = 0;
  uint32_t host = 0;
};

// One worker group as the controller knows it: sole owner of its knowledge tree, policy, queue and
// ledger of blocks. Nothing in it locks or blocks.
//
// A request waits in the queue pinning nothing. Admission, in order of arrival: match its prefix
// again; wait if another request is computing or loading the next part of it; choose whether to
// load what the host has of it or to compute that; make room by eviction; reserve; pin; Generate. A
// request that does not fit holds back the later ones until it does. What is
// reserved and pinned returns only with the worker's terminal event, or with the worker. Requests
// outlive a worker that comes back soon; when none does, they fail.
class GroupActor {
 public:
  // `term` is higher than that of any earlier controller of the group. `prefill_cost` is the
  // actor's from here on, to which it gives the worker's table; the policy may read it.
  GroupActor(const Config& config, uint64_t term, std::unique_ptr<EvictionPolicy> policy,
             std::shared_ptr<PrefillCost> prefill_cost, std::shared_ptr<Metrics> metrics);

  void handle(Submit submit, ActorContext& context);
  void handle(Withdraw withdraw, ActorContext& context);
  void handle(WorkerConnected connected, ActorContext& context);
  void handle(WorkerEvent event, ActorContext& context);
  void handle(WorkerLost lost, ActorContext& context);
  void handle(WorkerUnreachable unreachable, ActorContext& context);
  void handle(WorkerProfiled profiled, ActorContext& context);
  void handle(GetGroupStatus get, ActorContext& context);
  void handle(ClearGroupCache clear, ActorContext& context);
  void handle(GetGroupTree get, ActorContext& context);
  void handle(ReleasePath release, ActorContext& context);

  // Aborts if an invariant of tree or ledger is broken. O(nodes), for tests.
  void check_invariants() const;

 private:
  // What a request needs to be sent, sent again and ended.
  struct Request {
    Submit submit;
    uint64_t arrival;  // order of the queue, kept over preemption and worker loss
    std::vector<TokenId> generated;
    uint32_t worker_losses = 0;
    uint32_t misses = 0;
    // Of the first admission: what the request itself computed is no hit when it comes again.
    std::optional<CachedTokens> first_cached;
    bool hits_counted = false;
    bool expected = false;  // the tree knows that it waits
    TimePoint admitted{};
    Duration scheduling{};  // spent on its admission, failed attempts included

    // While on the worker.
    uint32_t reserved_segment_blocks = 0;
    uint32_t reserved_private_blocks = 0;
    bool withdrawn = false;
    bool preempting = false;

    uint32_t tail_tokens() const {
      return static_cast<uint32_t>(submit.plan->tail.size() + generated.size());
    }
    uint32_t tokens_left() const {
      return submit.max_tokens - static_cast<uint32_t>(generated.size());
    }
  };
  using Queue = std::map<uint64_t, Request>;       // by arrival
  using Running = std::map<std::string, Request>;  // by request id

  // Sends what the queue and the ledger allow.
  void dispatch(ActorContext& context);
  enum class Admission { kSent, kWaitsForPrefix, kDoesNotFit };
  Admission admit(Request& request, ActorContext& context);
  // Whether the host's part of the prefix comes sooner by its copy than by computing it.
  bool worth_loading(const PromptPlan& plan, const KnowledgeTree::Match& match,
                     uint32_t tail_tokens) const;
  worker::v1::ExecuteRequest generate_command(const Request& request, size_t on_device,
                                              size_t to_load) const;
  // Evicts until `blocks` are free; false if that cannot be.
  bool make_room(uint32_t blocks);
  void grow_pending();
  // Tells the worker the tree's moves, in their order, and settles the ledger with them.
  void carry_out(const std::vector<Move>& moves);
  void send_moves(std::span<const Move> moves);
  void send(worker::v1::ExecuteRequest command);

  void on_snapshot(const worker::v1::Snapshot& snapshot);
  void on_segment_ready(const worker::v1::SegmentReady& ready);
  void on_segment_lost(const worker::v1::SegmentLost& lost);
  void on_tokens(const worker::v1::Tokens& tokens);
  void on_need_blocks(const worker::v1::NeedBlocks& need);
  void on_load(const worker::v1::Load& load);
  void on_finished(const worker::v1::Finished& finished);
  void on_cancelled(const worker::v1::Cancelled& cancelled);
  void on_failed(const worker::v1::Failed& failed);

  // Takes the request off the worker: unpins its path, returns its blocks.
  Request take_back(Running::iterator it);
  void requeue(Request request);
  void enqueue(Request request);
  Request dequeue(Queue::iterator it);
  // The tree is told what waits, if the policy looks ahead.
  void expect(Request& request);
  void unexpect(Request& request);
  // Passes tokens on; with the first ones, counts the request's hits and tells of its admission.
  void deliver(Request& request, TokensArrived arrived, CachedTokens cached);
  // After a while without a worker requests fail, waiting ones and new ones, until there is one.
  void no_worker_at(TimePoint now);
  absl::Status no_worker() const;
  // Answers and counts it, whatever came of it.
  void end(Request& request, absl::Status status, worker::v1::FinishReason reason);
  void end_withdrawn(Request& request);
  // Why the worker can never run it; OK if it can.
  absl::Status check_fits(const Submit& submit) const;
  uint32_t blocks_of(uint32_t tokens) const { return tree_->blocks_of(tokens); }
  uint32_t blocks_of(std::span<const SegmentSpec> chain) const;
  Request* find_running(const std::string& request_id);
  void update_gauges();

  const Config config_;
  const uint64_t term_;
  const std::unique_ptr<EvictionPolicy> policy_;
  const std::shared_ptr<PrefillCost> prefill_cost_;
  const std::shared_ptr<Metrics> metrics_;

  // The connection; commands_ is valid while connected_.
  bool connected_ = false;
  bool snapshot_complete_ = false;
  uint64_t connection_ = 0;
  uint64_t commands_sent_ = 0;
  worker::v1::GetInfoResponse info_;
  Address<worker::v1::ExecuteRequest> commands_;
  std::string lost_reason_ = "not connected yet";
  std::optional<TimePoint> absent_since_;  // while there is no worker
  bool given_up_ = false;

  std::unique_ptr<KnowledgeTree> tree_;  // of this connection
  BlockLedger ledger_;
  Queue queue_;
  Running running_;
  std::list<worker::v1::NeedBlocks> pending_growth_;  // in the order asked
  uint64_t arrivals_ = 0;
  KnowledgeTree::Evictions counted_;  // of the tree's, in evictions_
  worker::v1::Load load_;             // the worker's last word of itself, on this connection

  // Over all connections.
  std::map<SegmentId, std::vector<SegmentSpec>> kept_;  // paths, by their last node
  uint64_t queried_tokens_ = 0;
  uint64_t device_hit_tokens_ = 0;
  uint64_t host_hit_tokens_ = 0;
  KnowledgeTree::Evictions evictions_;
  uint64_t ledger_mismatches_ = 0;
  uint64_t lost_copies_ = 0;
};

}  // namespace ragcache::controller
