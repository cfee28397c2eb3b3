#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <string_view>

#include "common/limits.h"
#include "ragcache/retrieval/v1/retrieval.grpc.pb.h"
#include "services/retrieval/corpora.h"
#include "services/retrieval/embed/embedder.h"
#include "services/retrieval/metrics.h"

namespace ragcache::retrieval {

// What a request may hold. Beyond it the call ends as INVALID_ARGUMENT, naming field and bound.
struct Limits {
  static constexpr uint32_t kTopK = kMaxRequestDocuments;
  static constexpr size_t kQueryBytes = 64 << 10;
  static constexpr size_t kIdBytes = 512;
  static constexpr size_t kTitleBytes = kMaxTitleBytes;
  static constexpr size_t kTextBytes = kMaxTextBytes;
  static constexpr int kItemsPerMessage = 1000;
  static constexpr int kIdsPerMessage = 1000;
  static constexpr int kTextsPerMessage = kMaxEmbeddingTexts;
  static constexpr uint32_t kListDocuments = 1000;
  static constexpr uint32_t kListDocumentsDefault = 100;
  // Calls being worked on or waiting for a thread; more end as RESOURCE_EXHAUSTED.
  static constexpr int kCalls = 1024;
  // Uploads are counted apart: they last as long as their clients like.
  static constexpr int kUploads = 64;
};

// The places for calls of a kind.
struct CallPlaces {
  const std::string_view kind;
  const int max;
  std::atomic<int> taken = 0;
};

// RetrievalService over the corpora. gRPC's threads copy, post and return; the work is done on two
// pools: one for searches and lookups, one of the service for what writes. Calls must have ended
// (the server is stopped) and the first pool be joined before the service goes.
class Service final : public v1::RetrievalService::CallbackService {
 public:
  Service(Corpora& corpora, Embedder& embedder, Metrics& metrics, std::string embedding_model,
          boost::asio::thread_pool& search_pool);
  ~Service() override;

  grpc::ServerWriteReactor<v1::SearchResponse>* Search(grpc::CallbackServerContext* context,
                                                       const v1::SearchRequest* request) override;
  grpc::ServerBidiReactor<v1::UpsertDocumentsRequest, v1::UpsertDocumentsResponse>* UpsertDocuments(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetDocuments(grpc::CallbackServerContext* context,
                                         const v1::GetDocumentsRequest* request,
                                         v1::GetDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* ListDocuments(grpc::CallbackServerContext* context,
                                          const v1::ListDocumentsRequest* request,
                                          v1::ListDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteDocuments(grpc::CallbackServerContext* context,
                                            const v1::DeleteDocumentsRequest* request,
                                            v1::DeleteDocumentsResponse* response) override;
  grpc::ServerUnaryReactor* CreateCorpus(grpc::CallbackServerContext* context,
                                         const v1::CreateCorpusRequest* request,
                                         v1::CreateCorpusResponse* response) override;
  grpc::ServerUnaryReactor* ListCorpora(grpc::CallbackServerContext* context,
                                        const v1::ListCorporaRequest* request,
                                        v1::ListCorporaResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCorpus(grpc::CallbackServerContext* context,
                                         const v1::DeleteCorpusRequest* request,
                                         v1::DeleteCorpusResponse* response) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const v1::EmbedRequest* request,
                                  v1::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::GetInfoRequest* request,
                                    v1::GetInfoResponse* response) override;

  Corpora& corpora() { return corpora_; }
  Embedder& embedder() { return embedder_; }
  Metrics& metrics() { return metrics_; }
  CallPlaces& calls() { return calls_; }
  CallPlaces& uploads() { return uploads_; }
  boost::asio::thread_pool& search_pool() { return search_pool_; }
  boost::asio::thread_pool& write_pool() { return write_pool_; }

 private:
  // Answers by `work`, a function that gives a Status, on a thread of the pool.
  grpc::ServerUnaryReactor* run_unary(grpc::CallbackServerContext* context,
                                      boost::asio::thread_pool& pool,
                                      std::function<absl::Status()> work);
  void count_documents();

  Corpora& corpora_;
  Embedder& embedder_;
  Metrics& metrics_;
  const std::string embedding_model_;

  CallPlaces calls_{.kind = "calls", .max = Limits::kCalls};
  CallPlaces uploads_{.kind = "uploads", .max = Limits::kUploads};

  boost::asio::thread_pool& search_pool_;
  boost::asio::thread_pool write_pool_;
};

// One of the places for calls, held as long as a call is worked on.
class CallSlot {
 public:
  explicit CallSlot(CallPlaces& places);
  ~CallSlot();
  CallSlot(const CallSlot&) = delete;
  CallSlot& operator=(const CallSlot&) = delete;

  // RESOURCE_EXHAUSTED if all places were taken.
  absl::Status status() const;

 private:
  CallPlaces& places_;
  const int number_;
};

}  // namespace ragcache::retrieval
