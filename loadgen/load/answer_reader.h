#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "loadgen/load/request.h"

namespace ragcache::loadgen {

// Reads a streamed answer of an OpenAI-compatible server into an outcome, event by event. Members
// that it does not know, or that are of another type than OpenAI's and RAGCache's, are passed over.
class AnswerReader {
 public:
  explicit AnswerReader(Outcome& outcome) : outcome_(outcome) {}

  // The data of one event, which came `now` after the start of the load. The first token is there
  // with the first text, or where no text comes, with the end of a choice. A Status has the
  // outcome's error as its message.
  absl::Status take(const std::string& data, Duration now);

  // Whether "[DONE]" has come: nothing is missing.
  bool done() const { return done_; }

 private:
  Outcome& outcome_;
  bool done_ = false;
};

}  // namespace ragcache::loadgen
