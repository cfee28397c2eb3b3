// Tokenizers of model folders against the reference libraries: tests/golden/tokenizers/, and the
// folders that RAG_TOKENIZER_FOLDERS names, separated by colons (tests/golden/README.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/strings.h"
#include "common/tokenizer/model_folder.h"
#include "common/tokenizer/testing.h"

namespace ragcache {
namespace {

using ::testing::HasSubstr;

constexpr int kShownMismatchesMax = 5;

std::string golden(const std::string& name) {
  return str_cat(std::getenv("RAG_SOURCE_DIR"), "/tests/golden/tokenizers/", name);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> load(const std::string& folder) {
  const std::string gguf = folder + "/tokenizer.gguf";
  if (!std::filesystem::exists(gguf)) return load_folder_tokenizer(folder);
  return load_gguf_tokenizer(**GgufFile::open(gguf));
}

std::vector<std::string> folders() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(golden(""))) {
    found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  if (const char* more = std::getenv("RAG_TOKENIZER_FOLDERS")) {
    std::istringstream list(more);
    for (std::string folder; std::getline(list, folder, ':');) found.push_back(folder);
  }
  return found;
}

TEST(FolderTokenizers, GiveTheReferencesIds) {
  EXPECT_GE(folders().size(), 8u);
  for (const std::string& folder : folders()) {
    const auto tokenizer = load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::ifstream file(folder + "/strings.jsonl");
    ASSERT_TRUE(file.is_open()) << folder;
    int n_strings = 0;
    int n_mismatches = 0;
    for (std::string line; std::getline(file, line); ++n_strings) {
      const nlohmann::json row = nlohmann::json::parse(line);
      const std::string text = row[0];
      const std::vector<TokenId> expected = row[1];
      const std::vector<TokenId> ids = (*tokenizer)->encode(text);
      if (ids == expected || ++n_mismatches > kShownMismatchesMax) continue;
      ADD_FAILURE() << folder << ": " << nlohmann::json(text)
                    << "\nours:      " << nlohmann::json(ids)
                    << "\nreference: " << nlohmann::json(expected);
    }
    std::cout << std::filesystem::path(folder).filename() << ": " << n_strings << " strings, "
              << n_mismatches << " mismatches\n";
    EXPECT_EQ(n_mismatches, 0);
  }
}

TEST(FolderTokenizers, DecodeToTheTextByteForByte) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const std::string& folder : folders()) {
    if (folder.ends_with("qwen2")) continue;  // composes characters
    const auto tokenizer = *load(folder);
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_bytes(random, random() % 100);
      // SentencePiece cannot tell U+2581 from a space.
      if (text.find("\u2581") != std::string::npos) continue;
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << folder;
    }
  }
}

TEST(FolderTokenizers, ReadOneSentencePieceVocabularyTheSameFromEveryFormat) {
  const auto model = *load(golden("sentence_piece"));
  const auto gguf = *load(golden("sentence_piece_gguf"));
  EXPECT_EQ(model->fingerprint(), gguf->fingerprint());
  for (const auto& tokenizer : {model, gguf, *load(golden("characters_metaspace"))}) {
    EXPECT_TRUE(tokenizer->space_prefix());
    EXPECT_EQ(tokenizer->special_token("<s>"), TokenId{1});
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("<s>\n<0x0A>")), "<s>\n<0x0A>");
  }
  EXPECT_EQ(gguf->bos(), TokenId{1});
  EXPECT_EQ(gguf->eos(), TokenId{2});
}

// A copy of a golden folder's file with one change.
class ChangedFolder : public ::testing::Test {
 protected:
  ~ChangedFolder() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string error(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    const auto tokenizer = load_folder_tokenizer(folder_);
    return tokenizer.ok() ? "no error" : std::string(tokenizer.status().message());
  }
  std::string json_error(auto change, const std::string& base = "llama3") {
    nlohmann::json root = nlohmann::json::parse(read(golden(base + "/tokenizer.json")));
    change(root);
    return error("tokenizer.json", root.dump());
  }

  const std::string folder_ = str_cat(::testing::TempDir(), "/changed_tokenizer_", ::getpid());
};

TEST_F(ChangedFolder, NamesTheFieldThatIsNotKnown) {
  using Json = nlohmann::json;
  EXPECT_EQ(json_error([](Json&) {}), "no error");
  EXPECT_THAT(json_error([](Json& j) { j["model"]["type"] = "Unigram"; }), HasSubstr("Unigram"));
  EXPECT_THAT(json_error([](Json& j) { j.erase("model"); }), HasSubstr("model is not an object"));
  EXPECT_THAT(json_error([](Json& j) { j["model"]["dropout"] = 0.1; }), HasSubstr("model.dropout"));
  EXPECT_THAT(json_error([](Json& j) {
                j["normalizer"] = {{"type", "NFKC"}};
              }),
              HasSubstr("normalizer is none of those known: {\"type\":\"NFKC\"}"));
  EXPECT_THAT(json_error([](Json& j) {
                j["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("pre_tokenizer is none"));
  EXPECT_THAT(json_error(
                  [](Json& j) {
                    j["pre_tokenizer"] = {{"type", "Whitespace"}};
                  },
                  "characters"),
              HasSubstr("pre_tokenizer is none"));
  EXPECT_THAT(json_error([](Json& j) {
                j["model"]["merges"].push_back({"a", "\u4f60"});
              }),
              HasSubstr("uses a token that model.vocab lacks"));
  EXPECT_THAT(json_error([](Json& j) { j["model"]["merges"].push_back("ab"); }),
              HasSubstr("is not two tokens"));
  EXPECT_THAT(json_error([](Json& j) { j["model"]["vocab"]["new"] = uint64_t{1} << 40; }),
              HasSubstr("model.vocab of \"new\" is 1099511627776"));
  EXPECT_THAT(json_error([](Json& j) { j["model"]["vocab"]["new"] = -1; }), HasSubstr("is -1"));
  EXPECT_THAT(json_error([](Json& j) { j["model"]["vocab"]["new"] = 7; }), HasSubstr("7 twice"));
  EXPECT_THAT(json_error([](Json& j) { j["added_tokens"][0].erase("id"); }),
              HasSubstr("added_tokens[0].id is null"));
  EXPECT_THAT(json_error([](Json& j) { j["added_tokens"].back()["lstrip"] = true; }),
              HasSubstr("lstrip is true"));
  EXPECT_THAT(error("tokenizer.json", "{"), HasSubstr("no JSON object"));
}

TEST_F(ChangedFolder, SurvivesCutsAndRandomlyChangedBytesOfASentencePieceModel) {
  const std::string whole = read(golden("sentence_piece/tokenizer.model"));
  EXPECT_EQ(error("tokenizer.model", whole), "no error");
  // A message that comes twice is merged: what follows the model overrides its normalizer_spec.
  EXPECT_THAT(error("tokenizer.model", whole + std::string("\x1a\x02\x20\x01", 4)),
              HasSubstr("remove_extra_whitespaces is true"));
  EXPECT_THAT(error("tokenizer.model", whole + std::string("\x12\x02\x18\x01", 4)),
              HasSubstr("model_type is 1"));
  EXPECT_THAT(error("tokenizer.model", whole + "\x0a\x7f"), HasSubstr("cut short"));
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string changed = whole.substr(0, 1 + random() % whole.size());
    changed[random() % changed.size()] = static_cast<char>(random());
    error("tokenizer.model", changed);
  }
}

}  // namespace
}  // namespace ragcache
