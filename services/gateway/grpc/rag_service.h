#pragma once

#include "ragcache/gateway/v1/gateway.grpc.pb.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// RagService: checks what the HTTP API checks and passes on. Holds nothing; any thread.
class RagService final : public v1::RagService::CallbackService {
 public:
  // `services` outlive it.
  explicit RagService(Services& services) : services_(services) {}

  using Context = grpc::CallbackServerContext;
  using AnswerWriter = grpc::ServerWriteReactor<controller::v1::AnswerResponse>;

  AnswerWriter* Chat(Context* context, const v1::ChatRequest* request) override;
  AnswerWriter* Complete(Context* context, const v1::CompleteRequest* request) override;
  grpc::ServerUnaryReactor* Embed(Context* context, const retrieval::v1::EmbedRequest* request,
                                  retrieval::v1::EmbedResponse* response) override;
  grpc::ServerWriteReactor<retrieval::v1::SearchResponse>* Search(
      Context* context, const retrieval::v1::SearchRequest* request) override;

  grpc::ServerBidiReactor<retrieval::v1::UpsertDocumentsRequest,
                          retrieval::v1::UpsertDocumentsResponse>*
  UpsertDocuments(Context* context) override;
  grpc::ServerUnaryReactor* GetDocuments(Context* context,
                                         const retrieval::v1::GetDocumentsRequest* request,
                                         retrieval::v1::GetDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* ListDocuments(Context* context,
                                          const retrieval::v1::ListDocumentsRequest* request,
                                          retrieval::v1::ListDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDocuments(
      Context* context, const retrieval::v1::DeleteDocumentsRequest* request,
      retrieval::v1::DeleteDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* CreateCorpus(Context* context,
                                         const retrieval::v1::CreateCorpusRequest* request,
                                         retrieval::v1::CreateCorpusResponse* response) override;
  grpc::ServerUnaryReactor* ListCorpora(Context* context,
                                        const retrieval::v1::ListCorporaRequest* request,
                                        retrieval::v1::ListCorporaResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCorpus(Context* context,
                                         const retrieval::v1::DeleteCorpusRequest* request,
                                         retrieval::v1::DeleteCorpusResponse* response) override;

  grpc::ServerUnaryReactor* ListModels(Context* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(Context* context,
                                      const controller::v1::GetStatusRequest* request,
                                      controller::v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* GetCacheStats(Context* context, const v1::GetCacheStatsRequest* request,
                                          v1::GetCacheStatsResponse* response) override;
  grpc::ServerUnaryReactor* GetCacheTree(Context* context,
                                         const controller::v1::GetCacheTreeRequest* request,
                                         controller::v1::GetCacheTreeResponse* response) override;
  grpc::ServerUnaryReactor* ClearCache(Context* context,
                                       const controller::v1::ClearCacheRequest* request,
                                       controller::v1::ClearCacheResponse* response) override;
  grpc::ServerUnaryReactor* UpdateCachePaths(Context* context,
                                             const v1::UpdateCachePathsRequest* request,
                                             v1::UpdateCachePathsResponse* response) override;

 private:
  Services& services_;
};

}  // namespace ragcache::gateway
