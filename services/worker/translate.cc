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

Tier to_tier(types::v1::Tier from) {
  switch (from) {
    case types::v1::TIER_DEVICE:
      return Tier::kDevice;
    case types::v1::TIER_HOST:
      return Tier::kHost;
    default:
      return Tier::kNone;
  }
}

absl::StatusOr<std::vector<SegmentId>> to_segment_ids(
    const google::protobuf::RepeatedPtrField<std::string>& from) {
  std::vector<SegmentId> ids;
  for (const std::string& bytes : from) {
    RAG_ASSIGN_OR_RETURN(ids.emplace_back(), SegmentId::parse(bytes));
  }
  return ids;
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
    generate.segments.push_back(
        {id, {segment.tokens().begin(), segment.tokens().end()}, to_tier(segment.expected_tier())});
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
      added.set_on_device(entry.on_device);
      added.set_on_host(entry.on_host);
    }
    page.set_last_page(from.last);
  }
  void operator()(const SegmentReady& from) {
    v1::SegmentReady& ready = *to.mutable_segment_ready();
    ready.set_request_id(from.request_id);
    ready.set_segment_id(bytes_of(from.id));
    ready.set_blocks(from.blocks);
    ready.set_loaded(from.loaded);
  }
  void operator()(const SegmentSaved& from) {
    to.mutable_segment_saved()->set_segment_id(bytes_of(from.id));
  }
  void operator()(const SegmentLost& from) {
    to.mutable_segment_lost()->set_segment_id(bytes_of(from.id));
    to.mutable_segment_lost()->set_reason(from.reason);
  }
  void operator()(const Tokens& from) {
    v1::Tokens& tokens = *to.mutable_tokens();
    tokens.set_request_id(from.request_id);
    tokens.mutable_ids()->Add(from.ids.begin(), from.ids.end());
    if (from.cached_device_tokens.has_value()) {
      tokens.set_cached_device_tokens(*from.cached_device_tokens);
      tokens.set_cached_host_tokens(from.cached_host_tokens);
    }
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
    load.set_host_total_blocks(from.host_total_blocks);
    load.set_host_free_blocks(from.host_free_blocks);
    load.set_host_cached_blocks(from.host_cached_blocks);
    load.set_saved_bytes(from.saved_bytes);
    load.set_loaded_bytes(from.loaded_bytes);
    load.set_damaged_segments(from.damaged_segments);
  }
  void operator()(const Finished& from) {
    v1::Finished& finished = *to.mutable_finished();
    finished.set_request_id(from.request_id);
    finished.set_reason(from.reason == FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                           : v1::FINISH_REASON_LENGTH);
    finished.set_prompt_tokens(from.prompt_tokens);
    finished.set_cached_device_tokens(from.cached_device_tokens);
    finished.set_cached_host_tokens(from.cached_host_tokens);
    finished.set_load_us(from.load_us);
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
      case Failure::kInternal:
        break;
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
      Drop drop{.tier = to_tier(request.drop().tier())};
      RAG_ASSIGN_OR_RETURN(drop.segments, to_segment_ids(request.drop().segment_ids()));
      if (drop.tier == Tier::kNone) {
        return absl::InvalidArgumentError("drop.tier must be the device or the host");
      }
      command.body = std::move(drop);
      return command;
    }
    case v1::ExecuteRequest::kReplicate: {
      Replicate replicate;
      RAG_ASSIGN_OR_RETURN(replicate.segments, to_segment_ids(request.replicate().segment_ids()));
      command.body = std::move(replicate);
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

v1::ProfileResponse to_response(const PrefillProfile& profile) {
  v1::ProfileResponse response;
  response.set_points(static_cast<uint32_t>(profile.seconds.size()));
  v1::PrefillProfile& to = *response.mutable_profile();
  to.mutable_cached_tokens()->Add(profile.cached_tokens.begin(), profile.cached_tokens.end());
  to.mutable_new_tokens()->Add(profile.new_tokens.begin(), profile.new_tokens.end());
  to.mutable_seconds()->Add(profile.seconds.begin(), profile.seconds.end());
  const Digest& fingerprint = profile.key.model_fingerprint;
  to.set_model_fingerprint(std::string(fingerprint.begin(), fingerprint.end()));
  to.set_machine(profile.key.machine);
  return response;
}

}  // namespace ragcache::worker
