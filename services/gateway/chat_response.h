#pragma once

#include <cstdint>
#include <string>

#include "ragcache/controller/v1/controller.pb.h"
#include "services/gateway/json.h"

namespace ragcache::gateway {

// OpenAI's chat objects of one request, whole and as stream chunks, with this project's additions:
// `documents` beside the first choices, `timings` beside the last.
class ChatResponse {
 public:
  ChatResponse(std::string id, std::string model, int64_t created, bool include_usage)
      : id_(std::move(id)),
        model_(std::move(model)),
        created_(created),
        include_usage_(include_usage) {}

  OutJson whole(const std::string& text, const controller::v1::Retrieved& retrieved,
                const controller::v1::Completed& completed) const;

  // The assistant's role, and the documents.
  OutJson first_chunk(const controller::v1::Retrieved& retrieved) const;
  OutJson text_chunk(const std::string& text) const;
  // The finish reason; timings here unless a usage chunk follows.
  OutJson last_chunk(const controller::v1::Completed& completed) const;
  OutJson usage_chunk(const controller::v1::Completed& completed) const;

 private:
  OutJson chunk(OutJson choices) const;

  const std::string id_;
  const std::string model_;
  const int64_t created_;
  const bool include_usage_;
};

}  // namespace ragcache::gateway
