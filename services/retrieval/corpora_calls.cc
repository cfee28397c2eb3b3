#include <memory>

#include "common/status.h"
#include "services/retrieval/convert.h"
#include "services/retrieval/service.h"

// The calls about corpora as a whole.
namespace ragcache::retrieval {

grpc::ServerUnaryReactor* Service::CreateCorpus(grpc::CallbackServerContext* context,
                                                const v1::CreateCorpusRequest* request,
                                                v1::CreateCorpusResponse* response) {
  return run_unary(context, write_pool_, [this, request, response]() -> absl::Status {
    RAG_ASSIGN_OR_RETURN(const CorpusSettings settings, settings_from(request->corpus()));
    RAG_ASSIGN_OR_RETURN(const std::shared_ptr<Corpus> corpus,
                         corpora_.create(request->corpus().name(), settings));
    to_message(*corpus, *response->mutable_corpus());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* Service::ListCorpora(grpc::CallbackServerContext* context,
                                               const v1::ListCorporaRequest*,
                                               v1::ListCorporaResponse* response) {
  for (const std::shared_ptr<Corpus>& corpus : corpora_.list()) {
    to_message(*corpus, *response->add_corpora());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* Service::DeleteCorpus(grpc::CallbackServerContext* context,
                                                const v1::DeleteCorpusRequest* request,
                                                v1::DeleteCorpusResponse* response) {
  return run_unary(context, write_pool_, [this, request, response]() -> absl::Status {
    RAG_RETURN_IF_ERROR(check_corpus_name(request->name()));
    RAG_ASSIGN_OR_RETURN(const uint64_t documents, corpora_.remove(request->name()));
    response->set_deleted_documents(documents);
    count_documents();
    return absl::OkStatus();
  });
}

}  // namespace ragcache::retrieval
