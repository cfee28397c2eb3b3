#include "services/ragcache/serve.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/model/model_files.h"
#include "common/status.h"
#include "common/store/file.h"
#include "services/controller/app.h"
#include "services/gateway/app.h"
#include "services/retrieval/app.h"
#include "services/worker/app.h"

namespace ragcache {
namespace {

std::string default_state_dir() {
  if (const char* state = std::getenv("XDG_STATE_HOME")) return absl::StrCat(state, "/ragcache");
  if (const char* home = std::getenv("HOME")) return absl::StrCat(home, "/.local/state/ragcache");
  return "ragcache-state";
}

absl::Status write_whole(const std::string& path, const std::string& text) {
  RAG_ASSIGN_OR_RETURN(auto file, AtomicFile::create(path));
  RAG_RETURN_IF_ERROR(file.append({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  return file.commit();
}

}  // namespace

Serve::Serve() {
  state_dir_ = default_state_dir();
  retrieval_.state_dir = worker_.state_dir = state_dir_;  // one option, one default
  table_.add("state_dir", &state_dir_,
             {.required = true, .doc = "folder of documents, index, sockets and addresses"});
  gateway::add_options(table_, gateway_);
  controller::add_options(table_, controller_);
  retrieval::add_options(table_, retrieval_);
  worker::add_options(table_, worker_);
}

absl::Status Serve::run() {
  log_option_.apply();
  StopSignals signals;

  RAG_RETURN_IF_ERROR(make_writable_folder(state_dir_));
  RAG_ASSIGN_OR_RETURN(const auto lock, FolderLock::acquire(state_dir_));
  auto socket = [&](const char* name) { return absl::StrCat("unix:", state_dir_, "/", name); };
  worker_.listen = socket("worker.sock");
  retrieval_.listen = socket("retrieval.sock");
  controller_.listen = socket("controller.sock");
  controller_.worker_address = worker_.listen;
  controller_.retrieval_address = retrieval_.listen;
  gateway_.controller_address = controller_.listen;
  gateway_.retrieval_address = retrieval_.listen;

  // Held while the services start, so that they share it.
  RAG_ASSIGN_OR_RETURN(auto model, ModelFiles::open(worker_.model));
  // Stopped last to first, so that each service ends before those it calls.
  auto registry = std::make_shared<prometheus::Registry>();
  RAG_ASSIGN_OR_RETURN(auto worker, worker::App::start(worker_, registry));
  RAG_ASSIGN_OR_RETURN(auto retrieval, retrieval::App::start(retrieval_, registry));
  RAG_ASSIGN_OR_RETURN(auto controller, controller::App::start(controller_, registry));
  RAG_ASSIGN_OR_RETURN(auto gateway, gateway::App::start(gateway_, registry));
  model.reset();

  const std::string address_file = absl::StrCat(state_dir_, "/gateway.address");
  RAG_RETURN_IF_ERROR(write_whole(address_file, gateway->address()));
  absl::Cleanup remove_address = [&] { unlink(address_file.c_str()); };
  log::info("serving", {{"address", gateway->address()}, {"state_dir", state_dir_}});

  signals.wait();
  log::info("stopping", {});
  std::move(remove_address).Invoke();
  gateway->stop();
  controller->stop();
  retrieval->stop();
  worker->stop();
  return absl::OkStatus();
}

}  // namespace ragcache
