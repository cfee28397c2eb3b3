// The group's cache: the tree's decisions on their way to the worker, and what operators ask and
// do.
#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "services/controller/group_actor.h"

namespace ragcache::controller {

void GroupActor::carry_out(const std::vector<Move>& moves) {
  const auto count = [](prometheus::Counter& counter, uint64_t& told, uint64_t now,
                        uint64_t& total) {
    counter.Increment(static_cast<double>(now - told));
    total += now - told;
    told = now;
  };
  const KnowledgeTree::Evictions& now = tree_->evictions();
  count(metrics_->evicted_demoted, counted_.demoted, now.demoted, evictions_.demoted);
  count(metrics_->evicted_freed, counted_.freed, now.freed, evictions_.freed);
  count(metrics_->evicted_host, counted_.host, now.host, evictions_.host);
  count(metrics_->released_copies, counted_.copies, now.copies, evictions_.copies);
  // The worker takes commands in order, so the blocks are free for any later one.
  ledger_.uncache(ledger_.cached() - tree_->device_blocks());
  send_moves(moves);
}

void GroupActor::send_moves(std::span<const Move> moves) {
  while (!moves.empty()) {
    const Move::Kind kind = moves.front().kind;
    const auto end = std::find_if(moves.begin(), moves.end(),
                                  [kind](const Move& move) { return move.kind != kind; });
    worker::v1::ExecuteRequest command;
    google::protobuf::RepeatedPtrField<std::string>* ids;
    if (kind == Move::Kind::kReplicate) {
      ids = command.mutable_replicate()->mutable_segment_ids();
    } else {
      worker::v1::Drop& drop = *command.mutable_drop();
      drop.set_tier(kind == Move::Kind::kDropDevice ? types::v1::TIER_DEVICE
                                                    : types::v1::TIER_HOST);
      ids = drop.mutable_segment_ids();
    }
    for (auto move = moves.begin(); move != end; ++move) {
      ids->Add(std::string(move->id.as_bytes()));
    }
    send(std::move(command));
    moves = {end, moves.end()};
  }
}

void GroupActor::handle(GetGroupStatus get, ActorContext&) {
  GroupStatus status;
  status.ready = connected_ && snapshot_complete_;
  // The old reason stands until the worker has shown what it holds: it may yet refuse the stream.
  if (!status.ready) status.not_ready_reason = lost_reason_;
  status.worker = info_;
  status.running = static_cast<uint32_t>(running_.size());
  status.waiting = static_cast<uint32_t>(queue_.size());
  v1::CacheStats& cache = status.cache;
  cache.set_policy(std::string(policy_->name()));
  cache.set_total_blocks(ledger_.total());
  cache.set_free_blocks(ledger_.free());
  cache.set_reserved_blocks(ledger_.reserved());
  cache.set_cached_blocks(ledger_.cached());
  cache.set_queried_prefix_tokens(queried_tokens_);
  cache.set_hit_prefix_tokens(device_hit_tokens_ + host_hit_tokens_);
  cache.set_hit_host_prefix_tokens(host_hit_tokens_);
  cache.set_evicted_nodes(evictions_.demoted + evictions_.freed);
  cache.set_demoted_nodes(evictions_.demoted);
  cache.set_evicted_host_nodes(evictions_.host);
  cache.set_released_copies(evictions_.copies);
  cache.set_lost_copies(lost_copies_);
  cache.set_ledger_mismatches(ledger_mismatches_);
  cache.set_host_total_blocks(info_.host_blocks());
  cache.set_saved_bytes(load_.saved_bytes());
  cache.set_loaded_bytes(load_.loaded_bytes());
  if (tree_ != nullptr) {
    cache.set_nodes(tree_->node_count());
    cache.set_pinned_nodes(static_cast<uint32_t>(tree_->pinned_nodes()));
    cache.set_kept_nodes(static_cast<uint32_t>(tree_->kept_nodes()));
    cache.set_cached_tokens(tree_->cached_tokens());
    cache.set_device_tokens(tree_->device_tokens());
    cache.set_host_tokens(tree_->host_tokens());
    cache.set_host_cached_blocks(tree_->host_blocks());
  }
  get.reply.send(std::move(status));
}

void GroupActor::handle(GetGroupTree get, ActorContext&) {
  v1::GetCacheTreeResponse tree;
  const auto residence = [](Residence residence) {
    switch (residence) {
      case Residence::kPending:
        return v1::RESIDENCE_PENDING;
      case Residence::kReady:
        return v1::RESIDENCE_READY;
      case Residence::kNone:
        break;
    }
    return v1::RESIDENCE_NONE;
  };
  if (tree_ != nullptr) {
    tree_->for_each([&](const TreeNode& node) {
      tree.set_total_nodes(tree.total_nodes() + 1);
      if (static_cast<uint32_t>(tree.nodes_size()) >= get.max_nodes) return;
      v1::CacheNode& told = *tree.add_nodes();
      told.set_segment_id(std::string(node.id.as_bytes()));
      if (node.parent != nullptr) told.set_parent_id(std::string(node.parent->id.as_bytes()));
      told.set_document_id(std::string(node.name.view()));
      told.set_tokens(node.tokens);
      told.set_device(residence(node.device));
      told.set_host(residence(node.host));
      told.set_users(node.users);
      told.set_kept(node.kept);
      told.set_priority(node.priority);
    });
  }
  get.reply.send(std::move(tree));
}

void GroupActor::handle(ClearGroupCache clear, ActorContext& context) {
  CacheCleared cleared{};
  if (tree_ != nullptr) {
    const uint64_t tokens = tree_->cached_tokens();
    const uint64_t nodes = tree_->node_count();
    carry_out(tree_->clear());
    cleared = {nodes - tree_->node_count(), tokens - tree_->cached_tokens(), tree_->node_count()};
  }
  clear.reply.send(cleared);
  dispatch(context);
}

void GroupActor::handle(ReleasePath release, ActorContext& context) {
  // By the names of its documents: they may have been replaced since it was kept.
  const std::vector<SegmentSpec>& chain = release.plan->chain;
  bool was_kept = false;
  for (auto it = kept_.begin(); it != kept_.end();) {
    const std::vector<SegmentSpec>& kept = it->second;
    const bool same = !chain.empty() && kept[0].id == chain[0].id &&
                      std::ranges::equal(kept, chain, {}, &SegmentSpec::name, &SegmentSpec::name);
    if (same && tree_ != nullptr) tree_->keep(kept, false);
    was_kept |= same;
    it = same ? kept_.erase(it) : std::next(it);
  }
  release.reply.send(PathReleased{was_kept});
  dispatch(context);
}

void GroupActor::update_gauges() {
  metrics_->blocks_free.Set(ledger_.free());
  metrics_->blocks_reserved.Set(ledger_.reserved());
  metrics_->blocks_cached.Set(ledger_.cached());
  metrics_->requests_running.Set(static_cast<double>(running_.size()));
  metrics_->requests_waiting.Set(static_cast<double>(queue_.size()));
  const uint32_t on_host = tree_ == nullptr ? 0 : tree_->host_blocks();
  metrics_->host_blocks_cached.Set(on_host);
  metrics_->host_blocks_free.Set(tree_ == nullptr ? 0 : info_.host_blocks() - on_host);
  metrics_->pinned_nodes.Set(tree_ == nullptr ? 0 : static_cast<double>(tree_->pinned_nodes()));
  metrics_->device_clock.Set(policy_->clock(Tier::kDevice));
  metrics_->host_clock.Set(policy_->clock(Tier::kHost));
}

void GroupActor::check_invariants() const {
  RAG_CHECK(connected_ == (tree_ != nullptr));
  uint32_t reserved = 0;
  for (const auto& [id, request] : running_) {
    reserved += request.reserved_segment_blocks + request.reserved_private_blocks;
  }
  RAG_CHECK(ledger_.reserved() == reserved);
  RAG_CHECK(ledger_.free() + ledger_.reserved() + ledger_.cached() == ledger_.total());
  if (tree_ == nullptr) return;
  tree_->check_invariants();
  RAG_CHECK(ledger_.cached() == tree_->device_blocks());
  RAG_CHECK(!running_.empty() || tree_->pinned_nodes() == 0);
}

}  // namespace ragcache::controller
