#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/actor/actor.h"
#include "common/tokenizer/prompt_format.h"
#include "services/controller/messages.h"

namespace ragcache::controller {

// Retrieval in simulation: answers after a while, fails at times, is down for a time. Documents are
// replaced and deleted while they are asked for; each has a version, and a text that shows it.
class SimRetrieval {
 public:
  static constexpr int kDocuments = 12;
  // Of this corpus all tenants share the cache.
  static constexpr const char* kSharedCorpus = "shared";

  using Versions = std::map<std::string, int>;  // by document id

  // What happened, for the test to look at.
  struct History {
    Versions acknowledged;                 // replaced or deleted, and said so
    std::map<std::string, Versions> used;  // by request id, of its last answer
    int unavailable = 0;
  };

  SimRetrieval(std::shared_ptr<const PromptFormat> format, std::shared_ptr<History> history,
               ActorRef<SimRetrieval> self)
      : format_(std::move(format)), history_(std::move(history)), self_(self) {}

  static std::string id_of(int number) { return "d" + std::to_string(number); }

  static std::vector<TokenId> tokens_of(const PromptFormat& format, const std::string& id,
                                        int version) {
    const int number = std::stoi(id.substr(1));
    const auto letters = static_cast<size_t>(1 + number * 2 + version);
    return format.document("", std::string(letters, "abc"[(number + version) % 3]));
  }

  void handle(FindDocuments find, ActorContext& context) {
    RAG_CHECK(find.deadline < TimePoint::max());
    self_.send_after(std::chrono::microseconds(context.random() % 20000), Reply{std::move(find)});
  }
  void handle(CancelFind, ActorContext&) {}

  struct Reply {
    FindDocuments find;
  };
  void handle(Reply reply, ActorContext& context) {
    const FindDocuments& find = reply.find;
    if (context.now() < down_until_ || context.random() % 20 == 0) {
      ++history_->unavailable;
      return find.reply.send(DocumentsFound{absl::UnavailableError("retrieval is down")});
    }
    DocumentsFound found;
    found.cache_scope = find.corpus == kSharedCorpus ? types::v1::CACHE_SCOPE_SHARED
                        : find.corpus.empty()        ? types::v1::CACHE_SCOPE_UNSPECIFIED
                                                     : types::v1::CACHE_SCOPE_TENANT;
    Versions& used = history_->used[find.request_id];
    used.clear();
    for (const std::string& id : find.document_ids) {
      const int version = versions_[id];
      if (deleted_[id]) {
        return find.reply.send(DocumentsFound{absl::NotFoundError("no document " + id)});
      }
      const std::vector<TokenId> tokens = tokens_of(*format_, id, version);
      const Digest digest = digest_of_tokens(tokens);
      types::v1::Document& document = found.documents.emplace_back();
      document.set_id(id);
      document.mutable_segment_tokens()->Add(tokens.begin(), tokens.end());
      document.set_token_digest(std::string(digest.begin(), digest.end()));
      used[id] = version;
    }
    find.reply.send(std::move(found));
  }

  struct Change {
    std::string id;
    bool deletes;
  };
  void handle(Change change, ActorContext&) {
    history_->acknowledged[change.id] = ++versions_[change.id];
    deleted_[change.id] = change.deletes;
  }

  struct GoDown {
    Duration duration;
  };
  void handle(GoDown down, ActorContext& context) {
    down_until_ = std::max(down_until_, context.now() + down.duration);
  }

 private:
  const std::shared_ptr<const PromptFormat> format_;
  const std::shared_ptr<History> history_;
  const ActorRef<SimRetrieval> self_;
  Versions versions_;
  std::map<std::string, bool> deleted_;
  TimePoint down_until_{};
};

}  // namespace ragcache::controller
