#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/http/client.h"
#include "common/http/sse.h"
#include "services/gateway/app.h"
#include "tests/fakes/fake_controller.h"
#include "tests/fakes/fake_retrieval.h"

namespace ragcache::gateway {

// A gateway on a port of its own in front of fakes, and a client of it.
class GatewayTest : public testing::Test {
 protected:
  void start(Config config = {}) {
    config.listen = "127.0.0.1:0";
    config.grpc_listen = "127.0.0.1:0";
    config.controller_address = controller_.address();
    config.retrieval_address = retrieval_.address();
    registry_ = std::make_shared<prometheus::Registry>();
    auto app = App::start(std::move(config), registry_);
    ASSERT_TRUE(app.ok()) << app.status();
    app_ = std::move(*app);
  }

  http::Client client() { return *http::Client::create(app_->address()); }

  http::Response send(const std::string& method, const std::string& target,
                      const std::string& body = "",
                      const std::string& content_type = "application/json",
                      http::Headers headers = {}) {
    http::ClientRequest request{.method = method, .target = target, .headers = headers};
    if (!content_type.empty()) request.headers.add("Content-Type", content_type);
    request.body = body;
    absl::StatusOr<http::Response> response = client().fetch(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : http::Response{.status = 0};
  }

  static nlohmann::json json_of(const http::Response& response) {
    return nlohmann::json::parse(response.body, nullptr, false);
  }

  static nlohmann::json chat_body() {
    return {{"model", "ragcache"}, {"messages", {{{"role", "user"}, {"content", "why?"}}}}};
  }

  static controller::v1::AnswerResponse retrieved() {
    controller::v1::AnswerResponse response;
    for (const char* id : {"b", "a"}) {
      types::v1::Document& document = *response.mutable_retrieved()->add_documents();
      document.set_id(id);
      document.set_title(std::string("Title ") + id);
      document.set_score(id[0] == 'b' ? 0.9f : 0.25f);
    }
    return response;
  }
  static controller::v1::AnswerResponse delta(const std::string& text, uint32_t choice = 0) {
    controller::v1::AnswerResponse response;
    response.mutable_delta()->set_text(text);
    response.mutable_delta()->set_choice(choice);
    return response;
  }
  static controller::v1::AnswerResponse ended(uint32_t choice,
                                              controller::v1::FinishReason reason) {
    controller::v1::AnswerResponse response;
    response.mutable_choice_ended()->set_choice(choice);
    response.mutable_choice_ended()->set_reason(reason);
    return response;
  }
  static controller::v1::AnswerResponse completed() {
    controller::v1::AnswerResponse response;
    controller::v1::Completed& end = *response.mutable_completed();
    end.set_reason(controller::v1::FINISH_REASON_STOP);
    end.set_prompt_tokens(100);
    end.set_cached_tokens(64);
    end.set_cached_documents(1);
    end.set_scheduling_ns(12500);
    end.set_completion_tokens(2);
    end.set_search_us(1500);
    end.set_queue_us(20);
    end.set_ttft_us(30000);
    end.set_total_us(45250);
    return response;
  }
  static std::vector<controller::v1::AnswerResponse> answer() {
    return {retrieved(), delta("Bec"), delta("ause \"ü\"\n"), completed()};
  }

  // A root, a document below it on both tiers and pinned, and one below that on its way.
  static controller::v1::GetCacheTreeResponse cache_tree() {
    using controller::v1::RESIDENCE_NONE, controller::v1::RESIDENCE_PENDING,
        controller::v1::RESIDENCE_READY;
    controller::v1::GetCacheTreeResponse tree;
    tree.set_total_nodes(4);
    const auto add = [&tree](char id, char parent, const char* document, uint32_t tokens) {
      controller::v1::CacheNode& node = *tree.add_nodes();
      node.set_segment_id(std::string(16, id));
      if (parent != 0) node.set_parent_id(std::string(16, parent));
      node.set_document_id(document);
      node.set_tokens(tokens);
      node.set_device(RESIDENCE_READY);
      node.set_host(RESIDENCE_NONE);
      return &node;
    };
    add('\x0a', 0, "", 20)->set_priority(2.5);
    controller::v1::CacheNode* node = add('\x0b', '\x0a', "doc-1", 300);
    node->set_host(RESIDENCE_READY);
    node->set_kept(true);
    node = add('\x0c', '\x0b', "say \"hi\"\\", 400);
    node->set_device(RESIDENCE_PENDING);
    node->set_users(2);
    return tree;
  }

  // After the gateway has stopped: a request is counted when its answer is already sent.
  std::string final_metrics() {
    app_->stop();
    return metrics::to_text(*registry_);
  }

  fakes::FakeController controller_;
  fakes::FakeRetrieval retrieval_;
  metrics::Registry registry_;
  std::unique_ptr<App> app_;  // ends before what it calls
};

}  // namespace ragcache::gateway
