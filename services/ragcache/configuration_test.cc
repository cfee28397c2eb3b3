#include "services/ragcache/configuration.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace ragcache {
namespace {

TEST(ConfigurationPage, SaysWhatTheProgramsRead) {
  // The default state folder is the reader's own.
  setenv("XDG_STATE_HOME", "~/.local/state", 1);
  const std::string path = std::string(std::getenv("RAG_SOURCE_DIR")) + "/docs/configuration.md";
  const std::string made = configuration_markdown();
  if (std::getenv("RAG_UPDATE_DOCS") != nullptr) std::ofstream(path) << made;
  std::ifstream file(path);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, made) << "docs/configuration.md is not what the options say: run this test with "
                           "RAG_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace ragcache
