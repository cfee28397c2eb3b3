// The same prompts by every way their KV can come to be: computed, on the device, from the host,
// and from the host by a second engine that found the first one's arena. Says how many answers
// differ in a token, and how many in a bit of their logprobs. Usage:
// services_worker_engine_tiers_bench MODEL DOCUMENTS QUESTIONS [PROMPTS] where both are text files
// of one document or question a line.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model_files.h"
#include "services/worker/engine/engine.h"
#include "services/worker/metrics.h"
#include "services/worker/model/llama.h"

namespace ragcache::worker {
namespace {

constexpr uint32_t kMaxBatchTokens = 512;
constexpr uint32_t kBlocks = 512;
constexpr uint32_t kHostBlocks = 4096;
constexpr size_t kPromptsOfAnEngine = 50;
constexpr size_t kDocumentsOfAPrompt = 2;
constexpr uint32_t kAnswerTokens = 16;

struct Prompt {
  std::vector<SegmentSpec> segments;
  std::vector<uint32_t> tail;
};

struct Answer {
  std::vector<uint32_t> tokens;
  std::vector<TokenLogprob> logprobs;
  uint32_t device_tokens = 0;
  uint32_t host_tokens = 0;

  bool same_bits(const Answer& other) const {
    if (logprobs.size() != other.logprobs.size()) return false;
    for (size_t i = 0; i < logprobs.size(); ++i) {
      if (logprobs[i].logprob != other.logprobs[i].logprob ||
          logprobs[i].top_ids != other.logprobs[i].top_ids ||
          logprobs[i].top_logprobs != other.logprobs[i].top_logprobs) {
        return false;
      }
    }
    return true;
  }
};

// An engine with its tiers.
class Worker {
 public:
  Worker(LlamaModel& model, const std::string& arena_path)
      : pool_(*BlockPool::create(model.kv_layout(), kBlocks)),
        arena_(*HostArena::open(arena_path, model.fingerprint(), model.kv_layout(), kHostBlocks)),
        transfers_(Copier(model.kv_layout(), pool_.memory(), arena_), [] {}),
        engine_(model, std::move(pool_), {.max_batch_tokens = kMaxBatchTokens}, metrics_,
                steady_now, Engine::Host{.arena = arena_, .transfers = transfers_}) {
    take(OpenStream{1});
    engine_.step();
    engine_.take_events();
  }
  ~Worker() { transfers_.stop(); }

  Answer answer(const Prompt& prompt, Tier tier) {
    Generate generate{.request_id = "r",
                      .segments = prompt.segments,
                      .tail = prompt.tail,
                      .max_tokens = kAnswerTokens,
                      .logprobs = true,
                      .top_logprobs = 20};
    generate.reserved_blocks = blocks_of(prompt.tail.size() + kAnswerTokens);
    for (SegmentSpec& segment : generate.segments) {
      segment.expected = tier;
      if (tier != Tier::kDevice) generate.reserved_blocks += blocks_of(segment.tokens.size());
    }
    take(std::move(generate));
    Answer answer;
    while (engine_.has_requests()) {
      engine_.step();
      for (Event& event : engine_.take_events()) {
        if (const auto* tokens = std::get_if<Tokens>(&event.body)) {
          answer.tokens.insert(answer.tokens.end(), tokens->ids.begin(), tokens->ids.end());
          answer.logprobs.insert(answer.logprobs.end(), tokens->logprobs.begin(),
                                 tokens->logprobs.end());
        } else if (const auto* finished = std::get_if<Finished>(&event.body)) {
          answer.device_tokens = finished->cached_device_tokens;
          answer.host_tokens = finished->cached_host_tokens;
        } else if (const auto* failed = std::get_if<Failed>(&event.body)) {
          std::fprintf(stderr, "failed: %s\n", failed->message.c_str());
          std::exit(1);
        }
      }
    }
    return answer;
  }
  void replicate(const Prompt& prompt) { take(Replicate{ids(prompt)}); }
  void drop(const Prompt& prompt) { take(Drop{ids(prompt), Tier::kDevice}); }
  void settle() {
    while (engine_.has_transfers()) engine_.step();
  }

 private:
  static std::vector<SegmentId> ids(const Prompt& prompt) {
    std::vector<SegmentId> ids;
    for (const SegmentSpec& segment : prompt.segments) ids.push_back(segment.id);
    return ids;
  }
  void take(decltype(Command::body) body) { engine_.take({1, ++commands_, std::move(body)}); }

  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  BlockPool pool_;
  HostArena arena_;
  TransferActor transfers_;
  Engine engine_;
  uint64_t commands_ = 0;
};

std::vector<std::string> lines_of(const char* path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

struct Differences {
  const char* how;
  uint32_t Answer::*tier_tokens;  // of the tier that should have all of the prompt's documents
  size_t answers = 0, tokens = 0, bits = 0, computed = 0;

  void count(const Answer& answer, const Answer& cold, const Prompt& prompt) {
    size_t document_tokens = 0;
    for (const SegmentSpec& segment : prompt.segments) document_tokens += segment.tokens.size();
    ++answers;
    if (answer.tokens != cold.tokens) ++tokens;
    if (!answer.same_bits(cold)) ++bits;
    if (answer.*tier_tokens != document_tokens) ++computed;
  }
  void print() const {
    std::printf(
        "%-10s %4zu answers: %zu differ in a token, %zu in a bit; %zu were computed in part\n", how,
        answers, tokens, bits, computed);
  }
};

int run(const char* path, const char* documents_path, const char* questions_path, size_t prompts) {
  const auto files = ModelFiles::open(path);
  const auto documents = lines_of(documents_path);
  const auto questions = lines_of(questions_path);
  if (!files.ok() || questions.size() < prompts ||
      documents.size() < prompts * kDocumentsOfAPrompt) {
    std::fprintf(stderr, "no model, or fewer lines than %zu prompts want\n", prompts);
    return 1;
  }
  kernels::ThreadPool threads(kernels::ThreadPool::default_threads());
  LlamaModel model(*load_llama_weights(**files, threads), kMaxBatchTokens, threads,
                   kernels::KvType::kF16);
  const auto tokenizer = *(*files)->tokenizer();
  std::vector<Prompt> all(prompts);
  for (size_t i = 0; i < prompts; ++i) {
    SegmentId parent = SegmentId::root(model.fingerprint(), "bench");
    for (size_t d = 0; d < kDocumentsOfAPrompt; ++d) {
      const auto ids = tokenizer->encode(documents[i * kDocumentsOfAPrompt + d]);
      const std::vector<uint32_t> tokens(ids.begin(), ids.end());
      parent = SegmentId::derive(parent, digest_of_tokens(tokens));
      all[i].segments.push_back({parent, tokens});
    }
    const auto tail = tokenizer->encode("\n" + questions[i] + "\nAnswer:");
    all[i].tail.assign(tail.begin(), tail.end());
  }

  const std::string arena = absl::StrCat("/dev/shm/ragcache-bench-", getpid());
  Differences device{"device", &Answer::device_tokens};
  Differences host{"host", &Answer::host_tokens};
  Differences recovered{"recovered", &Answer::host_tokens};
  for (size_t begin = 0; begin < prompts; begin += kPromptsOfAnEngine) {
    const size_t end = std::min(prompts, begin + kPromptsOfAnEngine);
    std::vector<Answer> cold(prompts);
    {
      Worker worker(model, arena);
      for (size_t i = begin; i < end; ++i) {
        cold[i] = worker.answer(all[i], Tier::kNone);
        device.count(worker.answer(all[i], Tier::kDevice), cold[i], all[i]);
        worker.replicate(all[i]);
        worker.drop(all[i]);
        host.count(worker.answer(all[i], Tier::kHost), cold[i], all[i]);
        worker.drop(all[i]);
      }
      worker.settle();
    }
    Worker worker(model, arena);
    for (size_t i = begin; i < end; ++i) {
      recovered.count(worker.answer(all[i], Tier::kHost), cold[i], all[i]);
      worker.drop(all[i]);
    }
    unlink(arena.c_str());
  }
  bool shown = true;
  for (const Differences* one : {&device, &host, &recovered}) {
    one->print();
    shown &= one->computed == 0 && one->bits == 0;
  }
  return shown ? 0 : 1;
}

}  // namespace
}  // namespace ragcache::worker

int main(int argc, char** argv) {
  // Was an option when only some engines kept every bit.
  if (argc > 1 && std::strcmp(argv[argc - 1], "--deterministic") == 0) --argc;
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL DOCUMENTS QUESTIONS [PROMPTS]\n", argv[0]);
    return 2;
  }
  const size_t prompts = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 200;
  return ragcache::worker::run(argv[1], argv[2], argv[3], prompts);
}
