#include "services/gateway/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>

namespace ragcache::gateway {
namespace {

using testing::HasSubstr;

absl::StatusOr<ApiKeys> load(const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("api-keys-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << text;
  absl::StatusOr<ApiKeys> keys = ApiKeys::load(path);
  std::filesystem::remove(path);
  return keys;
}

TEST(ApiKeys, KnowsTheTenantOfEachKey) {
  const auto keys =
      load("# who may ask\n\nacme:secret-of-acme\r\nacme:second-secret\nb.c:key:with:colons\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->tenant_of("Bearer secret-of-acme"), "acme");
  EXPECT_EQ(*keys->tenant_of("bearer second-secret"), "acme");
  EXPECT_EQ(*keys->tenant_of("Bearer key:with:colons"), "b.c");
  for (const char* authorization :
       {"", "Bearer", "Bearer ", "secret-of-acme", "Basic secret-of-acme", "Bearer secret-of-acm",
        "Bearer secret-of-acme2", "Bearer  secret-of-acme"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(keys->tenant_of(authorization).status())) << authorization;
  }
}

TEST(ApiKeys, AreNotAskedForWithoutAFile) {
  const auto keys = ApiKeys::load("");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(*keys->tenant_of(""), "default");
  EXPECT_EQ(*keys->tenant_of("Bearer whatever"), "default");
}

TEST(ApiKeys, NameTheBadLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "holds no key"},
      {"a:12345678\nnocolon\n", ":2: must be tenant:key"},
      {":12345678\n", ":1: must be tenant:key"},
      {"a b:12345678\n", ":1: must be tenant:key"},
      {"a:short\n", ":1: the key must be 8 to 512 visible ASCII characters"},
      {"a:has a blank\n", ":1: the key must be 8 to 512 visible ASCII characters"},
      {"a:12345678\nb:12345678\n", ":2: the key is there already"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(load(text).status().ToString(), HasSubstr(message)) << text;
  }
  EXPECT_THAT(ApiKeys::load("/nowhere/keys").status().ToString(),
              HasSubstr("api_keys_file: cannot read /nowhere/keys"));
}

}  // namespace
}  // namespace ragcache::gateway
