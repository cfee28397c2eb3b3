#include "services/worker/translate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace ragcache::worker {
namespace {

std::string bytes_of(const SegmentId& id) { return std::string(id.as_bytes()); }

SamplingParameters to_sampling(const types::v1::Sampling& from) {
  SamplingParameters sampling{
      .temperature = from.temperature(),
      .top_p = from.top_p(),
      .top_k = from.top_k(),
      .seed = from.seed(),
      .min_p = from.min_p(),
      .presence_penalty = from.presence_penalty(),
      .frequency_penalty = from.frequency_penalty(),
      .repetition_penalty = from.repetition_penalty() == 0 ? 1 : from.repetition_penalty()};
  for (const types::v1::LogitBias& bias : from.logit_bias()) {
    sampling.logit_bias.push_back({bias.token(), bias.bias()});
  }
  return sampling;
}

absl::StatusOr<Generate> to_generate(const v1::Generate& from) {
  Generate generate{.request_id = from.request_id(),
                    .tail = {from.tail_tokens().begin(), from.tail_tokens().end()},
                    .reserved_blocks = from.reserved_blocks(),
                    .sampling = to_sampling(from.sampling()),
                    .max_tokens = from.max_tokens(),
                    .stop_tokens = {from.stop_tokens().begin(), from.stop_tokens().end()},
                    .logprobs = from.logprobs(),
                    .top_logprobs = from.top_logprobs(),
                    .answer_tokens = from.answer_tokens()};
  for (const v1::Segment& segment : from.segments()) {
    RAG_ASSIGN_OR_RETURN(const SegmentId id, SegmentId::parse(segment.id()));
    generate.segments.push_back({id,
                                 {segment.tokens().begin(), segment.tokens().end()},
                                 segment.expected_tier() == types::v1::TIER_DEVICE});
  }
  return generate;
}

struct ToResponse {
  v1::ExecuteResponse& to;

  void operator()(const SnapshotPage& from) {
    v1::Snapshot& page = *to.mutable_snapshot();
    for (const SnapshotPage::Entry& entry : from.entries) {
      v1::Snapshot::Entry& added = *page.add_entries();
      added.set_segment_id(bytes_of(entry.id));
      if (entry.parent.has_value()) added.set_parent_id(bytes_of(*entry.parent));
      added.set_token_count(entry.token_count);
      added.set_blocks(entry.blocks);
    }
    page.set_last_page(from.last);
  }
  void operator()(const SegmentReady& from) {
    v1::SegmentReady& ready = *to.mutable_segment_ready();
    ready.set_request_id(from.request_id);
    ready.set_segment_id(bytes_of(from.id));
    ready.set_blocks(from.blocks);
  }
  void operator()(const Tokens& from) {
    v1::Tokens& tokens = *to.mutable_tokens();
    tokens.set_request_id(from.request_id);
    tokens.mutable_ids()->Add(from.ids.begin(), from.ids.end());
    if (from.cached_tokens.has_value()) tokens.set_cached_device_tokens(*from.cached_tokens);
    for (const TokenLogprob& logprob : from.logprobs) {
      v1::TokenLogprob& added = *tokens.add_logprobs();
      added.set_logprob(logprob.logprob);
      added.mutable_top_ids()->Add(logprob.top_ids.begin(), logprob.top_ids.end());
      added.mutable_top_logprobs()->Add(logprob.top_logprobs.begin(), logprob.top_logprobs.end());
    }
  }
  void operator()(const NeedBlocks& from) {
    to.mutable_need_blocks()->set_request_id(from.request_id);
    to.mutable_need_blocks()->set_blocks(from.blocks);
  }
  void operator()(const Load& from) {
    v1::Load& load = *to.mutable_load();
    load.set_last_command(from.last_command);
    load.set_total_blocks(from.total_blocks);
    load.set_free_blocks(from.free_blocks);
    load.set_reserved_blocks(from.reserved_blocks);
    load.set_cached_blocks(from.cached_blocks);
    load.set_pinned_segments(from.pinned_segments);
    load.set_running_requests(from.running_requests);
  }
  void operator()(const Finished& from) {
    v1::Finished& finished = *to.mutable_finished();
    finished.set_request_id(from.request_id);
    finished.set_reason(from.reason == FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                           : v1::FINISH_REASON_LENGTH);
    finished.set_prompt_tokens(from.prompt_tokens);
    finished.set_cached_device_tokens(from.cached_tokens);
    finished.set_completion_tokens(from.completion_tokens);
    finished.set_prefill_us(from.prefill_us);
    finished.set_decode_us(from.decode_us);
  }
  void operator()(const Cancelled& from) {
    to.mutable_cancelled()->set_request_id(from.request_id);
  }
  void operator()(const Failed& from) {
    v1::Failed& failed = *to.mutable_failed();
    failed.set_request_id(from.request_id);
    failed.set_code(code(from.code));
    failed.set_message(from.message);
    for (const SegmentId& id : from.missing) failed.add_missing_segment_ids(bytes_of(id));
  }

  static v1::FailureCode code(Failure failure) {
    switch (failure) {
      case Failure::kMissing:
        return v1::FAILURE_CODE_MISSING;
      case Failure::kPreempted:
        return v1::FAILURE_CODE_PREEMPTED;
      case Failure::kInvalid:
        return v1::FAILURE_CODE_INVALID;
    }
    return v1::FAILURE_CODE_INTERNAL;
  }
};

}  // namespace

absl::StatusOr<Command> to_command(v1::ExecuteRequest request, uint64_t stream) {
  Command command{.stream = stream, .number = request.command()};
  switch (request.body_case()) {
    case v1::ExecuteRequest::kGenerate: {
      RAG_ASSIGN_OR_RETURN(command.body, to_generate(request.generate()));
      return command;
    }
    case v1::ExecuteRequest::kCancel:
      command.body = Cancel{request.cancel().request_id()};
      return command;
    case v1::ExecuteRequest::kGrow:
      command.body = Grow{request.grow().request_id(), request.grow().blocks()};
      return command;
    case v1::ExecuteRequest::kPreempt:
      command.body = Preempt{request.preempt().request_id()};
      return command;
    case v1::ExecuteRequest::kDrop: {
      Drop drop;
      for (const std::string& bytes : request.drop().segment_ids()) {
        RAG_ASSIGN_OR_RETURN(const SegmentId id, SegmentId::parse(bytes));
        drop.segments.push_back(id);
      }
      command.body = std::move(drop);
      return command;
    }
    case v1::ExecuteRequest::kOpen:
      return absl::InvalidArgumentError(
          absl::StrCat("command ", request.command(), " is a second open"));
    case v1::ExecuteRequest::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("command ", request.command(), " is none that this worker knows"));
}

v1::ExecuteResponse to_response(const Event& event) {
  v1::ExecuteResponse response;
  std::visit(ToResponse{response}, event.body);
  return response;
}

}  // namespace ragcache::worker
