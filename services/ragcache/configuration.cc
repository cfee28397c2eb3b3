#include "services/ragcache/configuration.h"

#include <initializer_list>

#include "common/strings.h"
#include "services/controller/program.h"
#include "services/gateway/program.h"
#include "services/ragcache/serve.h"
#include "services/retrieval/program.h"
#include "services/worker/program.h"

namespace ragcache {
namespace {

constexpr const char* kIntroduction =
    "# Configuration\n\n"
    "Made from the option rows in the code (`services/*/config.h`); a test compares this page "
    "with\n"
    "them, and `RAG_UPDATE_DOCS=1 build/release/tests/services_ragcache_test` writes it anew.\n\n"
    "An option such as `kv_memory_mib` is read from, later ones winning: its default, the key\n"
    "`kv_memory_mib` of the YAML file that `--config` names, the environment's\n"
    "`RAGCACHE_KV_MEMORY_MIB`, the flag `--kv-memory-mib`. Unknown keys and values out of bounds "
    "stop\n"
    "the start; all of them are listed at once, and the exit status is 2. `--print-config` shows "
    "each\n"
    "value and where it came from.\n";

}  // namespace

std::string configuration_markdown() {
  std::string text = kIntroduction;
  text += str_cat("\n## ragcache serve\n\nAll four services in one process.\n\n",
                  Serve().table().to_markdown());
  for (const Program& program : {gateway::gateway_program(), controller::controller_program(),
                                 retrieval::retrieval_program(), worker::worker_program()}) {
    text += str_cat("\n## ", program.name, "\n\n", program.summary, ".\n\n",
                    ProgramOptions(program).table.to_markdown());
  }
  return text;
}

}  // namespace ragcache
