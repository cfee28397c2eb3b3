#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/actor/actor.h"
#include "common/clock.h"
#include "ragcache/controller/v1/controller.pb.h"
#include "ragcache/retrieval/v1/retrieval.pb.h"
#include "ragcache/worker/v1/worker.pb.h"
#include "services/controller/prompt/prompt_plan.h"

// What the controller's actors say to one another and to the edges (gRPC clients and servers in
// production, fakes in simulation).
namespace ragcache::controller {

// ---- GroupActor to RequestActor

struct TokensArrived {
  uint32_t choice;
  std::vector<TokenId> tokens;
  std::vector<worker::v1::TokenLogprob> logprobs;  // one for each token, if asked for
  struct Admission {
    TimePoint at;         // when the choice left the queue
    Duration scheduling;  // the group's own work until then
    uint32_t cached_tokens;
    uint32_t cached_documents;
  };
  std::optional<Admission> admission;  // with the choice's first token
};

// A choice's end: OK after the last token, else why it failed. Nothing of it follows.
struct GroupEnded {
  uint32_t choice;
  absl::Status status;
  worker::v1::FinishReason reason;
};

using RequestEvents = Address<TokensArrived, GroupEnded>;

// ---- to GroupActor

// One choice of an answer: the worker's request.
struct Submit {
  std::string request_id;  // unique in this controller
  uint32_t choice;         // of the caller's request; its first one counts as the cache's query
  std::shared_ptr<const PromptPlan> plan;
  types::v1::Sampling sampling;
  uint32_t max_tokens;  // 0: the service's default
  std::vector<TokenId> stop_tokens;
  bool logprobs;
  uint32_t top_logprobs;
  bool keep = false;  // its path, once it has run, until ReleasePath
  RequestEvents reply;
};

// Answered by GroupEnded{CANCELLED}, unless the request has ended already.
struct Withdraw {
  std::string request_id;
};

// The worker's stream. `commands` leads to the worker until WorkerLost; a connection is known by
// its number, so that what an older one still says is ignored.
struct WorkerConnected {
  uint64_t connection;
  worker::v1::GetInfoResponse info;
  Address<worker::v1::ExecuteRequest> commands;
};

struct WorkerEvent {
  uint64_t connection;
  worker::v1::ExecuteResponse event;
};

struct WorkerLost {
  uint64_t connection;
  std::string reason;
};

// An attempt to connect failed. Comes again and again until one succeeds.
struct WorkerUnreachable {
  std::string reason;
};

// How long the worker's prefills take, as it measured.
struct WorkerProfiled {
  uint64_t connection;
  worker::v1::PrefillProfile profile;
};

// What the group is, was asked for, and holds.
struct GroupStatus {
  bool ready = false;
  std::string not_ready_reason;
  worker::v1::GetInfoResponse worker;
  v1::CacheStats cache;
  uint32_t running = 0;
  uint32_t waiting = 0;
};

struct GetGroupStatus {
  Address<GroupStatus> reply;
};

struct CacheCleared {
  uint64_t nodes;
  uint64_t tokens;
  uint64_t kept_nodes;
};

struct ClearGroupCache {
  Address<CacheCleared> reply;
};

struct GetGroupTree {
  uint32_t max_nodes;  // the upper ones first
  Address<v1::GetCacheTreeResponse> reply;
};

struct PathReleased {
  bool was_kept;
};

// Undoes a Submit with `keep` of the same documents, whatever became of their texts since.
struct ReleasePath {
  std::shared_ptr<const PromptPlan> plan;
  Address<PathReleased> reply;
};

using GroupAddress = Address<Submit, Withdraw, ReleasePath>;

// ---- RequestActor and retrieval

struct DocumentsFound {
  absl::Status status;
  std::vector<types::v1::Document> documents;  // in prompt order
  types::v1::CacheScope cache_scope;           // of their corpus
};

struct FindDocuments {
  std::string request_id;
  std::string query;                      // searched for, unless
  std::vector<std::string> document_ids;  // these are named
  uint32_t top_k;
  std::string corpus;
  types::v1::Filter filter;
  TimePoint deadline;
  Address<DocumentsFound> reply;
};

// Best effort; FindDocuments is answered all the same.
struct CancelFind {
  std::string request_id;
};

using RetrievalAddress = Address<FindDocuments, CancelFind>;

// ---- the client's call and RequestActor

struct AnswerEnded {
  absl::Status status;
};

using AnswerSink = Address<v1::AnswerResponse, AnswerEnded>;

struct Start {
  TimePoint deadline = TimePoint::max();  // of the client's call
};
struct ClientGone {};

}  // namespace ragcache::controller
