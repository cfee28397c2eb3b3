#pragma once

#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/worker/engine/engine_harness.h"

// For tests of the engine.
namespace ragcache::worker {

// A controller that commands at random, within its ledger.
class RandomController {
 public:
  RandomController(Harness& harness, std::mt19937& random) : harness_(harness), random_(random) {
    for (int i = 0; i < 6; ++i) documents_.push_back(random_tokens(random, 1 + random() % 50));
  }

  // A request about some documents, if it fits.
  void generate() {
    std::vector<std::vector<uint32_t>> chain;
    for (uint32_t i = random_() % 4; i > 0; --i) {
      chain.push_back(documents_[random_() % documents_.size()]);
    }
    const std::vector<uint32_t> tail = random_tokens(random_, 1 + random_() % 20);
    Generate command = harness_.make(absl::StrCat("g", sent_.size()), chain, tail,
                                     1 + random_() % 20, 1 + random_() % 8);
    if (random_() % 3 == 0) {
      command.sampling = {.temperature = 0.7f,
                          .top_p = 0.95f,
                          .seed = random_(),
                          .presence_penalty = static_cast<float>(random_() % 3) - 1,
                          .repetition_penalty = 1.2f};
    }
    command.answer_tokens = random_() % command.tail.size();
    if (command.reserved_blocks > harness_.free()) return;
    sent_[command.request_id] = command;
    harness_.generate(command);
  }
  // A Cancel or Preempt of one that runs.
  template <typename End>
  void end_one() {
    const std::vector<std::string> ids = running();
    if (!ids.empty()) harness_.send(End{ids[random_() % ids.size()]});
  }
  // What running requests ask for.
  void grow() {
    for (const std::string& id : running()) {
      const uint32_t need = harness_.answers[id].need;
      if (need > 0 && need <= harness_.free()) harness_.grow(id, need);
    }
  }
  // A segment leaves the device, unless somebody uses it.
  void drop() {
    if (harness_.cached().empty()) return;
    const SegmentId id = pick(harness_.cached());
    if (!used(id)) harness_.drop(id);
  }
  // A segment is copied to the host, if there is room, and perhaps leaves the device.
  void replicate() {
    if (harness_.cached().empty()) return;
    const SegmentId id = pick(harness_.cached());
    if (!harness_.on_host().contains(id) && harness_.cached().at(id) > harness_.host_free()) return;
    harness_.replicate(id);
    if (random_() % 2 == 0 && !used(id)) harness_.drop(id);
  }
  void drop_from_host() {
    if (!harness_.on_host().empty()) harness_.drop_from_host(pick(harness_.on_host()));
  }

  // Ends all requests. Nothing stays behind, each has ended for a good reason, and what finished,
  // so many of them, says what it says alone.
  size_t end_all() {
    for (const std::string& id : running()) harness_.send(Cancel{id});
    harness_.step();
    harness_.settle();
    EXPECT_FALSE(harness_.engine().has_requests());
    EXPECT_EQ(harness_.reserved(), 0u);
    EXPECT_EQ(harness_.last_load.pinned_segments, 0u);
    size_t finished = 0;
    for (const auto& [id, answer] : harness_.answers) {
      EXPECT_NE(answer.end, "");
      EXPECT_NE(answer.end, "invalid") << answer.message;
      EXPECT_NE(answer.end, "missing");
      if (answer.end != "finished") continue;
      ++finished;
      Generate command = sent_[id];
      for (SegmentSpec& segment : command.segments) segment.expected = Tier::kNone;
      command.reserved_blocks = 60;
      Harness alone(60);
      EXPECT_EQ(alone.run_alone(command).tokens, answer.tokens) << id;
    }
    return finished;
  }

 private:
  std::vector<std::string> running() const {
    std::vector<std::string> ids;
    for (const auto& [id, answer] : harness_.answers) {
      if (answer.end.empty()) ids.push_back(id);
    }
    return ids;
  }
  bool used(const SegmentId& segment) const {
    for (const std::string& id : running()) {
      for (const SegmentSpec& spec : sent_.at(id).segments) {
        if (spec.id == segment) return true;
      }
    }
    return false;
  }
  SegmentId pick(const std::map<SegmentId, uint32_t>& from) {
    return std::next(from.begin(), random_() % from.size())->first;
  }

  Harness& harness_;
  std::mt19937& random_;
  std::vector<std::vector<uint32_t>> documents_;
  std::map<std::string, Generate> sent_;
};

}  // namespace ragcache::worker
