// The controller's actors in virtual time, with a worker, a retrieval service and clients that
// delay, fail, go away and die, all from one seed. Each failure prints its seed; run one seed with
// RAG_SIM_SEED, more of them with RAG_SIM_RUNS.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/actor/sim_runtime.h"
#include "common/tokenizer/testing.h"
#include "services/controller/group_actor.h"
#include "services/controller/request_actor.h"
#include "services/controller/validate.h"
#include "tests/fakes/fake_worker.h"
#include "tests/sim/sim_retrieval.h"

namespace ragcache::controller {
namespace {

using fakes::FakeModel;
using fakes::FakeWorker;

constexpr uint32_t kMaxTokens = 20;  // of requests that name none
constexpr TokenId kLetterC = 5;

// The group with its invariants checked after every message, and that its policy's clocks never go
// back but when the cache is cleared.
class CheckedGroup : public GroupActor {
 public:
  // `policy_seen` is `policy`, which the group owns.
  CheckedGroup(const EvictionPolicy* policy_seen, const Config& config,
               std::unique_ptr<EvictionPolicy> policy, std::shared_ptr<PrefillCost> prefill_cost,
               std::shared_ptr<Metrics> metrics)
      : GroupActor(config, 1, std::move(policy), std::move(prefill_cost), std::move(metrics)),
        policy_(policy_seen) {}

  template <typename M>
  void handle(M message, ActorContext& context) {
    GroupActor::handle(std::move(message), context);
    check_invariants();
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      double& last = tier == Tier::kDevice ? device_clock_ : host_clock_;
      const double now = policy_->clock(tier);
      RAG_CHECK(now >= last || (std::is_same_v<M, ClearGroupCache>));
      last = now;
    }
  }

 private:
  const EvictionPolicy* const policy_;
  double device_clock_ = 0;
  double host_clock_ = 0;
};

// What one client saw.
struct Seen {
  struct Choice {
    std::string text;
    std::vector<v1::TokenLogprob> logprobs;
    std::optional<v1::FinishReason> reason;
  };
  std::map<uint32_t, Choice> choices;
  bool retrieved = false;
  bool completed = false;
  int ended = 0;
  absl::Status status;
  v1::Completed usage;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : runtime_(seed),
        forgetful_(seed % 2 == 1),
        tokenizer_(*TinyVocabulary().load()),
        format_(*PromptFormat::create(tokenizer_)),
        memory_(std::make_shared<FakeWorker::Memory>(
            FakeWorker::Memory{.device_blocks = 40 + below(80),
                               .host_blocks = below(5) == 0 ? below(4) : below(200),
                               .load_bytes_per_second = kLoadRates[below(std::size(kLoadRates))],
                               .forgetful = forgetful_})),
        metrics_(std::make_shared<Metrics>(registry_)) {
    Config config;
    config.max_running = 1 + below(6);
    config.max_tokens = kMaxTokens;
    config.system_prompt = kSystem;
    config.cached_prefix_docs = below(3) == 0 ? 2 : 0;
    config.prefix_cache = below(16) > 0;
    const std::vector<std::string> policies = policy_names();
    std::unique_ptr<EvictionPolicy> policy = *make_policy(policies[below(policies.size())]);
    const EvictionPolicy* const policy_seen = policy.get();
    group_ = runtime_.spawn<CheckedGroup>(policy_seen, config, std::move(policy),
                                          std::make_shared<PrefillCost>(PrefillCost::unmeasured()),
                                          metrics_);
    retrieval_ = runtime_.spawn<SimRetrieval>(format_, history_);
    auto submits = GroupAddress::of_functions(
        [this](Submit submit) {
          check_scope(submit);
          group_.send(std::move(submit));
        },
        [this](Withdraw withdraw) { group_.send(std::move(withdraw)); },
        [this](ReleasePath release) { group_.send(std::move(release)); });
    dependencies_ = std::make_shared<RequestActor::Dependencies>(RequestActor::Dependencies{
        config, tokenizer_, format_, model_, retrieval_, std::move(submits), metrics_});
  }

  void run(int requests) {
    start_worker();
    for (int number = 0; number < requests; ++number) {
      start_request(number);
      for (uint64_t steps = below(200); steps > 0; --steps) runtime_.step();
      if (below(4) == 0) clients_[below(clients_.size())].actor.send(ClientGone{});
      if (forgetful_ && below(12) == 0) worker_.send(FakeWorker::Forget{});
      if (forgetful_ && below(12) == 0) worker_.send(FakeWorker::Damage{});
      if (below(20) == 0)
        group_.send(ClearGroupCache{Address<CacheCleared>::of_functions([](CacheCleared) {})});
      if (below(15) == 0) group_.send(WorkerProfiled{connections_ - below(2), make_profile()});
      if (below(25) == 0) {
        if (below(3) == 0) {
          worker_.send(FakeWorker::Break{});
        } else {
          worker_.send(FakeWorker::Die{});
        }
        start_worker();
      }
      if (below(4) == 0) {
        retrieval_.send(SimRetrieval::Change{
            SimRetrieval::id_of(static_cast<int>(below(SimRetrieval::kDocuments))), below(4) == 0});
      }
      if (below(30) == 0) {
        retrieval_.send(
            SimRetrieval::GoDown{std::chrono::milliseconds(below(below(4) == 0 ? 15000 : 500))});
      }
    }
    constexpr uint64_t kMaxSteps = 2'000'000;
    ASSERT_LT(runtime_.run(kMaxSteps), kMaxSteps) << "the simulation does not come to rest";
    check_end();
  }

 private:
  static constexpr const char* kSystem = "ab c";
  static constexpr uint64_t kHopelessRate = 10'000;
  // Not measured; so slow that everything is computed; about as fast as computing; fast.
  static constexpr uint64_t kLoadRates[] = {0, kHopelessRate, 1'000'000, 1'000'000'000};

  struct Client {
    v1::AnswerRequest request;
    ActorRef<RequestActor> actor;
    SimRetrieval::Versions acknowledged;  // before it asked
    std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  };

  uint32_t below(uint64_t n) { return static_cast<uint32_t>(runtime_.random()() % n); }
  std::string letters(uint32_t most) { return std::string(1 + below(most), "abc"[below(3)]); }

  // Now, or after it was away for a while; sometimes another controller has it first.
  void start_worker() {
    worker_ = runtime_.spawn<FakeWorker>(++connections_, memory_, FakeWorker::Group(group_));
    Duration pause{};
    if (below(3) == 0) {
      pause = std::chrono::milliseconds(below(40000));
      for (Duration at{}; at < pause; at += std::chrono::seconds(2)) {
        group_.send_after(at, WorkerUnreachable{"connection refused"});
      }
    }
    if (below(4) == 0) {
      worker_.send(FakeWorker::Refuse{});
      worker_.send_after(pause + std::chrono::milliseconds(10), FakeWorker::Connect{});
      worker_ = runtime_.spawn<FakeWorker>(++connections_, memory_, FakeWorker::Group(group_));
    }
    worker_.send_after(pause + std::chrono::milliseconds(below(2) * 50), FakeWorker::Connect{});
  }

  // How long prefills take. Sometimes the table makes no sense, and would have everything loaded.
  worker::v1::PrefillProfile make_profile() {
    const double slowness = 1e-4 * (1 + below(20));
    worker::v1::PrefillProfile profile;
    for (const uint32_t cached : {0u, 200u}) {
      profile.add_cached_tokens(cached);
      for (const uint32_t fresh : {16u, 64u, 256u}) {
        if (cached == 0) profile.add_new_tokens(fresh);
        profile.add_seconds(slowness * (1 + 0.2 * fresh));
      }
    }
    if (below(3) == 0) {
      profile.set_seconds(2, 1e6);
      profile.set_seconds(5, 1e-6);
    }
    return profile;
  }

  v1::AnswerRequest make_request(int number) {
    v1::AnswerRequest request;
    request.set_request_id(absl::StrCat("r", number));
    request.set_max_tokens(below(4) == 0 ? 0 : 1 + below(120));
    request.mutable_sampling()->set_top_p(1);
    request.mutable_sampling()->set_seed(below(100));
    request.mutable_sampling()->set_presence_penalty(1);
    if (below(5) == 0) request.add_stop("ab");
    if (below(6) == 0) request.add_stop_token_ids(kLetterC);
    request.set_ignore_eos(below(6) == 0);
    request.set_logprobs(below(3) == 0);
    if (request.logprobs()) request.set_top_logprobs(below(3));
    request.set_n(below(3) == 0 ? 1 + below(4) : 0);
    if (below(3) == 0) request.set_tenant(absl::StrCat("t", below(2)));
    if (below(6) == 0) {
      v1::RawPrompt& prompt = *request.mutable_raw_prompt();
      for (uint32_t n = below(3); n > 0; --n) {
        if (below(2) == 0) {
          prompt.add_segments()->set_text(letters(20));
        } else {
          prompt.add_segments()->mutable_tokens()->add_ids(below(9));
        }
      }
      prompt.mutable_tail()->set_text(letters(6));
      return request;
    }
    if (below(4) == 0) {
      v1::Message& system = *request.add_messages();
      system.set_role(v1::ROLE_SYSTEM);
      system.set_content(letters(8));
    }
    v1::Message& message = *request.add_messages();
    message.set_role(v1::ROLE_USER);
    message.set_content(letters(12));
    v1::Retrieval& retrieval = *request.mutable_retrieval();
    for (uint32_t n = below(5); n > 0; --n) {
      retrieval.add_document_ids(
          SimRetrieval::id_of(static_cast<int>(below(SimRetrieval::kDocuments))));
    }
    retrieval.set_enabled(!retrieval.document_ids().empty());
    if (below(10) == 0) {
      request.set_path_action(below(2) == 0 ? v1::PATH_ACTION_KEEP : v1::PATH_ACTION_RELEASE);
    }
    const char* corpora[] = {"", SimRetrieval::kSharedCorpus, "own"};
    retrieval.set_corpus(corpora[below(3)]);
    return request;
  }

  void start_request(int number) {
    Client client;
    client.request = make_request(number);
    ASSERT_TRUE(validate(client.request, tokenizer_->vocabulary_size()).ok());
    client.acknowledged = history_->acknowledged;
    client.actor = runtime_.spawn<RequestActor>(
        std::shared_ptr<const RequestActor::Dependencies>(dependencies_), client.request,
        sink(client.seen));
    if (below(4) == 0) {
      const Duration timeout = std::chrono::milliseconds(1 + below(3000));
      client.actor.send(Start{runtime_.now() + timeout});
      client.actor.send_after(timeout, ClientGone{});  // as gRPC does
    } else {
      client.actor.send(Start{});
    }
    clients_.push_back(std::move(client));
  }

  static AnswerSink sink(std::shared_ptr<Seen> seen) {
    return AnswerSink::of_functions(
        [seen](v1::AnswerResponse response) {
          EXPECT_EQ(seen->ended, 0);
          EXPECT_FALSE(seen->completed);
          if (response.has_retrieved()) {
            EXPECT_FALSE(seen->retrieved);
            EXPECT_TRUE(seen->choices.empty());
            seen->retrieved = true;
          } else if (response.has_delta()) {
            const v1::Delta& delta = response.delta();
            Seen::Choice& choice = seen->choices[delta.choice()];
            EXPECT_FALSE(choice.reason.has_value());
            choice.text += delta.text();
            choice.logprobs.insert(choice.logprobs.end(), delta.logprobs().begin(),
                                   delta.logprobs().end());
          } else if (response.has_choice_ended()) {
            Seen::Choice& choice = seen->choices[response.choice_ended().choice()];
            EXPECT_FALSE(choice.reason.has_value());
            choice.reason = response.choice_ended().reason();
          } else {
            seen->completed = true;
            seen->usage = response.completed();
          }
        },
        [seen](AnswerEnded ended) {
          ++seen->ended;
          seen->status = ended.status;
        });
  }

  static std::string scope_of(const v1::AnswerRequest& request) {
    if (request.retrieval().enabled() &&
        request.retrieval().corpus() == SimRetrieval::kSharedCorpus) {
      return "shared";
    }
    return "tenant/" + (request.tenant().empty() ? "default" : request.tenant());
  }

  // Nothing is cached under another scope than the caller's.
  void check_scope(const Submit& submit) {
    if (submit.plan->chain.empty()) return;
    for (const Client& client : clients_) {
      if (!submit.request_id.starts_with(client.request.request_id() + "#")) continue;
      EXPECT_EQ(submit.plan->chain[0].id,
                SegmentId::derive(SegmentId::root(model_, scope_of(client.request)),
                                  digest_of_tokens(submit.plan->segment_tokens[0])));
      return;
    }
    ADD_FAILURE() << submit.request_id << " is no client's";
  }

  std::vector<TokenId> prompt_of(const v1::AnswerRequest& request) const {
    std::vector<TokenId> prompt;
    const auto append = [&prompt](const std::vector<TokenId>& tokens) {
      prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    };
    if (request.has_raw_prompt()) {
      for (const auto& part : request.raw_prompt().segments()) {
        append(part.has_text()
                   ? tokenizer_->encode(part.text())
                   : std::vector<TokenId>(part.tokens().ids().begin(), part.tokens().ids().end()));
      }
      append(tokenizer_->encode(request.raw_prompt().tail().text()));
      return prompt;
    }
    const bool has_system = request.messages_size() > 1;
    append(format_->root(has_system ? request.messages(0).content() : kSystem));
    if (request.retrieval().enabled()) {
      const SimRetrieval::Versions& used = history_->used.at(request.request_id());
      for (const std::string& id : request.retrieval().document_ids()) {
        append(SimRetrieval::tokens_of(*format_, id, used.at(id)));
      }
    }
    append(format_->tail(std::vector<ChatMessage>{
        {ChatRole::kUser, request.messages(has_system ? 1 : 0).content()}}));
    return prompt;
  }

  void check_choice(const Client& client, uint32_t index, const std::vector<TokenId>& prompt) {
    const v1::AnswerRequest& request = client.request;
    SCOPED_TRACE(absl::StrCat(request.request_id(), " choice ", index));
    const Seen::Choice& seen = client.seen->choices[index];
    uint32_t max_tokens = request.max_tokens();
    if (max_tokens == 0) {
      max_tokens = std::min<uint32_t>(
          kMaxTokens, FakeWorker::kContextTokens - static_cast<uint32_t>(prompt.size()));
    }
    std::vector<TokenId> stop(request.stop_token_ids().begin(), request.stop_token_ids().end());
    if (!request.ignore_eos()) {
      const auto own = format_->stop_tokens();
      stop.insert(stop.end(), own.begin(), own.end());
    }
    const auto answer =
        FakeModel::answer(prompt, request.sampling().seed() + index, max_tokens, stop);
    std::string text;
    std::vector<std::pair<size_t, size_t>> extents;
    for (const FakeModel::Token& token : answer) {
      const size_t begin = text.size();
      if (!tokenizer_->is_special(token.id)) text += tokenizer_->token_bytes(token.id);
      extents.emplace_back(begin, text.size());
    }
    size_t cut = std::string::npos;
    for (const std::string& word : request.stop()) cut = std::min(cut, text.find(word));
    EXPECT_EQ(seen.text, text.substr(0, cut));
    const bool whole = cut == std::string::npos && answer.size() == max_tokens;
    EXPECT_EQ(seen.reason, whole ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP);

    const auto told = static_cast<size_t>(std::count_if(
        extents.begin(), extents.end(),
        [cut](const auto& extent) { return extent.first < cut || extent.second <= cut; }));
    ASSERT_EQ(seen.logprobs.size(), request.logprobs() ? told : 0);
    for (size_t i = 0; i < seen.logprobs.size(); ++i) {
      EXPECT_EQ(seen.logprobs[i].id(), answer[i].id);
      EXPECT_EQ(seen.logprobs[i].logprob(), answer[i].logprob);
      EXPECT_EQ(seen.logprobs[i].token(), tokenizer_->token_bytes(answer[i].id));
      EXPECT_EQ(seen.logprobs[i].top_size(), static_cast<int>(request.top_logprobs()));
    }
  }

  void check_answer(const Client& client) {
    const v1::AnswerRequest& request = client.request;
    ASSERT_TRUE(client.seen->completed) << request.request_id();
    if (request.path_action() == v1::PATH_ACTION_RELEASE) return;
    ++answered_;
    for (const auto& [id, version] : client.acknowledged) {
      const auto used = history_->used[request.request_id()];
      if (!request.retrieval().enabled() || !used.contains(id)) continue;
      EXPECT_GE(used.at(id), version) << "the old text of " << id;
    }
    const std::vector<TokenId> prompt = prompt_of(request);
    const uint32_t n = std::max(request.n(), 1u);
    EXPECT_EQ(client.seen->choices.size(), n);
    for (uint32_t i = 0; i < n; ++i) check_choice(client, i, prompt);
    EXPECT_EQ(client.seen->usage.reason(), client.seen->choices[0].reason);
    EXPECT_EQ(client.seen->usage.prompt_tokens(), prompt.size());
    EXPECT_LT(client.seen->usage.cached_tokens(), prompt.size());
    if (!dependencies_->config.prefix_cache) {
      EXPECT_EQ(client.seen->usage.cached_tokens(), 0u);
    }
    if (client.seen->usage.cached_tokens() == 0) {
      EXPECT_EQ(client.seen->usage.cached_documents(), 0u);
    }
  }

  void check_end() {
    for (const Client& client : clients_) {
      const Seen& seen = *client.seen;
      const std::string& id = client.request.request_id();
      ASSERT_EQ(seen.ended, 1) << id;
      if (seen.status.ok()) {
        check_answer(client);
        continue;
      }
      const auto code = seen.status.code();
      EXPECT_TRUE(code == absl::StatusCode::kCancelled || code == absl::StatusCode::kUnavailable ||
                  code == absl::StatusCode::kInvalidArgument ||
                  (code == absl::StatusCode::kNotFound &&
                   (client.request.retrieval().enabled() ||
                    client.request.path_action() == v1::PATH_ACTION_RELEASE)) ||
                  (forgetful_ && code == absl::StatusCode::kInternal))
          << id << ": " << seen.status;
      ++failures_[code];
    }
    GroupStatus status;
    group_.send(GetGroupStatus{
        Address<GroupStatus>::of_functions([&](GroupStatus got) { status = std::move(got); })});
    runtime_.run(100);
    EXPECT_TRUE(status.ready) << status.not_ready_reason;
    EXPECT_EQ(status.running, 0u);
    EXPECT_EQ(status.waiting, 0u);
    EXPECT_EQ(status.cache.pinned_nodes(), 0u);
    EXPECT_EQ(status.cache.reserved_blocks(), 0u);
    if (!forgetful_) {
      EXPECT_EQ(status.cache.ledger_mismatches(), 0u);
    }
    EXPECT_EQ(status.cache.free_blocks() + status.cache.cached_blocks(), memory_->device_blocks);
    EXPECT_LE(status.cache.host_cached_blocks(), memory_->host_blocks);
    if (memory_->load_bytes_per_second == kHopelessRate) {
      EXPECT_EQ(memory_->loads, 0u);
    }
  }

 public:
  int answered_ = 0;
  std::map<absl::StatusCode, int> failures_;
  double preemptions() const { return metrics_->preemptions.Value(); }
  double demotions() const { return metrics_->evicted_demoted.Value(); }
  double frees() const { return metrics_->evicted_freed.Value(); }
  double host_evictions() const {
    return metrics_->evicted_host.Value() + metrics_->released_copies.Value();
  }
  double host_hit_tokens() const { return metrics_->hits_host_tokens.Value(); }
  int retrieval_failures() const { return history_->unavailable; }

 private:
  SimRuntime runtime_;
  // Whether workers lose segments without telling: then the counts differ, by right.
  const bool forgetful_;
  prometheus::Registry registry_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const PromptFormat> format_;
  const Digest model_ = sha256("model");
  const std::shared_ptr<FakeWorker::Memory> memory_;
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<SimRetrieval::History> history_ = std::make_shared<SimRetrieval::History>();
  ActorRef<CheckedGroup> group_;
  ActorRef<SimRetrieval> retrieval_;
  ActorRef<FakeWorker> worker_;
  std::shared_ptr<RequestActor::Dependencies> dependencies_;
  std::vector<Client> clients_;
  uint64_t connections_ = 0;
};

// Of the simulation that runs: a broken invariant ends the process, and must say how to see it
// again.
uint64_t running_seed = 0;

void say_seed(int) {
  const std::string line = "RAG_SIM_SEED=" + std::to_string(running_seed) + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(ControllerSimulation, AnswersExactlyAndLosesNothingWhateverFails) {
  std::signal(SIGABRT, say_seed);
  const uint64_t first = number_from("RAG_SIM_SEED", 1);
  const uint64_t runs =
      number_from("RAG_SIM_RUNS", std::getenv("RAG_SIM_SEED") == nullptr ? 150 : 1);
  int answered = 0;
  double preemptions = 0;
  double demotions = 0;
  double frees = 0;
  double host_evictions = 0;
  double host_hit_tokens = 0;
  int retrieval_failures = 0;
  std::map<absl::StatusCode, int> failures;
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    SCOPED_TRACE("RAG_SIM_SEED=" + std::to_string(seed));
    running_seed = seed;
    Simulation simulation(seed);
    simulation.run(60);
    answered += simulation.answered_;
    preemptions += simulation.preemptions();
    demotions += simulation.demotions();
    frees += simulation.frees();
    host_evictions += simulation.host_evictions();
    host_hit_tokens += simulation.host_hit_tokens();
    retrieval_failures += simulation.retrieval_failures();
    for (const auto& [code, count] : simulation.failures_) failures[code] += count;
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << runs << " seeds from " << first << ", " << answered << " exact answers, "
            << preemptions << " preemptions, " << demotions << " demotions, " << frees << " freed, "
            << host_evictions << " host evictions, " << host_hit_tokens << " tokens loaded, "
            << retrieval_failures << " failed searches\n";
  for (const auto& [code, count] : failures) std::cout << count << " " << code << "\n";
  // What is not exercised is not tested.
  EXPECT_GT(answered, static_cast<int>(runs) * 20);
  if (runs >= 100) {
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(demotions, 0);
    EXPECT_GT(frees, 0);
    EXPECT_GT(host_evictions, 0);
    EXPECT_GT(host_hit_tokens, 0);
    EXPECT_GT(failures[absl::StatusCode::kNotFound], 0);
    EXPECT_GT(failures[absl::StatusCode::kUnavailable], 0);
  }
}

}  // namespace
}  // namespace ragcache::controller
