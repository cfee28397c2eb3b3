#pragma once

#include "ragcache/gateway/v1/gateway.grpc.pb.h"
#include "services/gateway/grpc/messages.h"
#include "services/gateway/request/answer.h"
#include "services/gateway/services.h"

namespace ragcache::gateway {

// A generated service whose `Methods` take and give bytes.
template <typename Service, template <typename> class... Methods>
struct RawMethods {
  using type = Service;
};
template <typename Service, template <typename> class First, template <typename> class... Others>
struct RawMethods<Service, First, Others...> {
  using type = First<typename RawMethods<Service, Others...>::type>;
};

using RawRagService = RawMethods<v1::RagService::Service,                                //
                                 v1::RagService::WithRawCallbackMethod_Chat,             //
                                 v1::RagService::WithRawCallbackMethod_Complete,         //
                                 v1::RagService::WithRawCallbackMethod_Embed,            //
                                 v1::RagService::WithRawCallbackMethod_Search,           //
                                 v1::RagService::WithRawCallbackMethod_UpsertDocuments,  //
                                 v1::RagService::WithRawCallbackMethod_GetDocuments,     //
                                 v1::RagService::WithRawCallbackMethod_ListDocuments,    //
                                 v1::RagService::WithRawCallbackMethod_DeleteDocuments,  //
                                 v1::RagService::WithRawCallbackMethod_CreateCorpus,     //
                                 v1::RagService::WithRawCallbackMethod_ListCorpora,      //
                                 v1::RagService::WithRawCallbackMethod_DeleteCorpus,     //
                                 v1::RagService::WithRawCallbackMethod_ListModels,       //
                                 v1::RagService::WithRawCallbackMethod_GetStatus,        //
                                 v1::RagService::WithRawCallbackMethod_GetCacheStats,    //
                                 v1::RagService::WithRawCallbackMethod_GetCacheTree,     //
                                 v1::RagService::WithRawCallbackMethod_ClearCache,       //
                                 v1::RagService::WithRawCallbackMethod_UpdateCachePaths>::type;

// RagService: checks what the HTTP API checks and passes on. Holds nothing; any thread.
class RagService final : public RawRagService {
 public:
  // `services` outlive it.
  explicit RagService(Services& services) : services_(services) {}

  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  using Stream = grpc::ServerWriteReactor<Bytes>;

  Stream* Chat(Context* context, const Bytes* request) override;
  Stream* Complete(Context* context, const Bytes* request) override;
  Unary* Embed(Context* context, const Bytes* request, Bytes* response) override;
  Stream* Search(Context* context, const Bytes* request) override;

  grpc::ServerBidiReactor<Bytes, Bytes>* UpsertDocuments(Context* context) override;
  Unary* GetDocuments(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ListDocuments(Context* context, const Bytes* request, Bytes* response) override;
  Unary* DeleteDocuments(Context* context, const Bytes* request, Bytes* response) override;
  Unary* CreateCorpus(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ListCorpora(Context* context, const Bytes* request, Bytes* response) override;
  Unary* DeleteCorpus(Context* context, const Bytes* request, Bytes* response) override;

  Unary* ListModels(Context* context, const Bytes* request, Bytes* response) override;
  Unary* GetStatus(Context* context, const Bytes* request, Bytes* response) override;
  Unary* GetCacheStats(Context* context, const Bytes* request, Bytes* response) override;
  Unary* GetCacheTree(Context* context, const Bytes* request, Bytes* response) override;
  Unary* ClearCache(Context* context, const Bytes* request, Bytes* response) override;
  Unary* UpdateCachePaths(Context* context, const Bytes* request, Bytes* response) override;

 private:
  RagLimits limits() const;

  Services& services_;
};

}  // namespace ragcache::gateway
