#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/rpc/server.h"
#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"

namespace ragcache::fakes {

// A RetrievalService on a unix socket of its own, with its corpora in maps. A search finds every
// document of its corpus, in the order of ids, in two stages. A token is a byte. An embedding has
// kDimension numbers, the first of which is the text's length.
class FakeRetrieval : public retrieval::v1::RetrievalService::CallbackService {
 public:
  static constexpr int kDimension = 4;

  FakeRetrieval();
  ~FakeRetrieval() override;

  const std::string& address() const { return server_->address(); }
  void stop() { server_->stop(Duration(0)); }

  // While paused, upserts are not read any further.
  void pause_upserts();
  void resume_upserts();
  // The call that brings a document of this id fails at it.
  void fail_at(std::string id, grpc::Status failure);
  void fail_searches(grpc::Status failure);
  // Whether so many upserts have come and all have ended; waits ten seconds for it.
  bool wait_upserts_ended(size_t count);
  // Waits ten seconds for `documents` to be stored.
  bool wait_stored(size_t documents);
  size_t largest_batch();
  size_t stored();  // in all corpora
  retrieval::v1::SearchRequest last_search();
  std::vector<int> embed_batches();  // texts of every Embed call

  grpc::ServerWriteReactor<retrieval::v1::SearchResponse>* Search(
      grpc::CallbackServerContext* context, const retrieval::v1::SearchRequest* request) override;
  grpc::ServerBidiReactor<retrieval::v1::UpsertDocumentsRequest,
                          retrieval::v1::UpsertDocumentsResponse>*
  UpsertDocuments(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetDocuments(grpc::CallbackServerContext* context,
                                         const retrieval::v1::GetDocumentsRequest* request,
                                         retrieval::v1::GetDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* ListDocuments(grpc::CallbackServerContext* context,
                                          const retrieval::v1::ListDocumentsRequest* request,
                                          retrieval::v1::ListDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDocuments(
      grpc::CallbackServerContext* context, const retrieval::v1::DeleteDocumentsRequest* request,
      retrieval::v1::DeleteDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* CreateCorpus(grpc::CallbackServerContext* context,
                                         const retrieval::v1::CreateCorpusRequest* request,
                                         retrieval::v1::CreateCorpusResponse* response) override;
  grpc::ServerUnaryReactor* ListCorpora(grpc::CallbackServerContext* context,
                                        const retrieval::v1::ListCorporaRequest* request,
                                        retrieval::v1::ListCorporaResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCorpus(grpc::CallbackServerContext* context,
                                         const retrieval::v1::DeleteCorpusRequest* request,
                                         retrieval::v1::DeleteCorpusResponse* response) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const retrieval::v1::EmbedRequest* request,
                                  retrieval::v1::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const retrieval::v1::GetInfoRequest* request,
                                    retrieval::v1::GetInfoResponse* response) override;

 private:
  class Upsert;
  using Documents = std::map<std::string, types::v1::Document>;
  struct Corpus {
    retrieval::v1::Corpus settings;
    Documents documents;
  };

  // Null: no corpus of that name. REQUIRES: mutex_ held.
  Corpus* find_corpus(const std::string& name);
  size_t count();  // REQUIRES: mutex_ held

  std::string folder_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Corpus> corpora_;
  retrieval::v1::SearchRequest last_search_;
  std::vector<int> embed_batches_;
  bool paused_ = false;
  Upsert* waiting_ = nullptr;  // for resume_upserts
  std::string fail_id_;
  grpc::Status failure_;
  grpc::Status search_failure_;
  size_t upserts_begun_ = 0;
  size_t upserts_ended_ = 0;
  size_t largest_batch_ = 0;

  std::unique_ptr<RpcServer> server_;  // ends first
};

}  // namespace ragcache::fakes
