#pragma once

#include "services/gateway/http/call.h"

// The routes' handlers, file by file. What each takes and answers is in docs/api.md.
namespace ragcache::gateway {

// chat.cc
boost::asio::awaitable<absl::Status> handle_chat(Call& call);
boost::asio::awaitable<absl::Status> handle_completions(Call& call);

// search.cc
boost::asio::awaitable<absl::Status> handle_search(Call& call);
boost::asio::awaitable<absl::Status> handle_embeddings(Call& call);

// upload.cc
boost::asio::awaitable<absl::Status> handle_upload(Call& call);
boost::asio::awaitable<absl::Status> handle_put_document(Call& call);

// documents.cc
boost::asio::awaitable<absl::Status> handle_list_documents(Call& call);
boost::asio::awaitable<absl::Status> handle_get_document(Call& call);
boost::asio::awaitable<absl::Status> handle_delete_document(Call& call);
boost::asio::awaitable<absl::Status> handle_delete_documents(Call& call);

// corpora.cc
boost::asio::awaitable<absl::Status> handle_list_corpora(Call& call);
boost::asio::awaitable<absl::Status> handle_get_corpus(Call& call);
boost::asio::awaitable<absl::Status> handle_put_corpus(Call& call);
boost::asio::awaitable<absl::Status> handle_delete_corpus(Call& call);

// status_handlers.cc
boost::asio::awaitable<absl::Status> handle_livez(Call& call);
boost::asio::awaitable<absl::Status> handle_readyz(Call& call);
boost::asio::awaitable<absl::Status> handle_metrics(Call& call);
boost::asio::awaitable<absl::Status> handle_models(Call& call);
boost::asio::awaitable<absl::Status> handle_model(Call& call);

// cache.cc
boost::asio::awaitable<absl::Status> handle_cache(Call& call);
boost::asio::awaitable<absl::Status> handle_cache_tree(Call& call);
boost::asio::awaitable<absl::Status> handle_clear_cache(Call& call);
boost::asio::awaitable<absl::Status> handle_warm_paths(Call& call);
boost::asio::awaitable<absl::Status> handle_pin_paths(Call& call);
boost::asio::awaitable<absl::Status> handle_unpin_paths(Call& call);

}  // namespace ragcache::gateway
