#include <cstring>

#include "common/status.h"
#include "common/strings.h"
#include "common/tokenizer/character_tokenizer.h"
#include "common/tokenizer/folder_formats.h"
#include "common/weights/mapped_file.h"

namespace ragcache {
namespace {

// SentencePiece's tokenizer.model is a protocol buffer (github.com/google/sentencepiece,
// sentencepiece_model.proto). Its few fields that matter are read here as the wire has them:
// Debian's library brings a protobuf of its own, whose symbols are those of gRPC's.
constexpr uint32_t kModelPieces = 1;
constexpr uint32_t kModelTrainer = 2;
constexpr uint32_t kModelNormalizer = 3;
constexpr uint32_t kPieceText = 1;
constexpr uint32_t kPieceScore = 2;
constexpr uint32_t kPieceType = 3;
constexpr uint32_t kTrainerModelType = 3;
constexpr uint32_t kTrainerSpaceAsSuffix = 24;
constexpr uint32_t kNormalizerCharacterMap = 2;
constexpr uint32_t kNormalizerDummyPrefix = 3;
constexpr uint32_t kNormalizerRemoveSpaces = 4;
constexpr uint32_t kNormalizerEscapeSpaces = 5;
constexpr uint64_t kModelTypeBpe = 2;

enum class PieceType : uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Field {
  uint32_t number;
  uint64_t value = 0;      // of a varint or fixed field
  std::string_view bytes;  // of a field with a length
};

// The fields of one message, in order.
class Fields {
 public:
  Fields(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

  bool done() const { return rest_.empty(); }

  absl::StatusOr<Field> next() {
    RAG_ASSIGN_OR_RETURN(const uint64_t tag, varint());
    if (tag >> 3 == 0 || tag >> 32 != 0) return damaged();
    Field field{.number = static_cast<uint32_t>(tag >> 3)};
    switch (tag & 7) {
      case 0: {
        RAG_ASSIGN_OR_RETURN(field.value, varint());
        return field;
      }
      case 1:
      case 5: {
        const size_t size = (tag & 7) == 1 ? 8 : 4;
        if (rest_.size() < size) return damaged();
        std::memcpy(&field.value, rest_.data(), size);
        rest_.remove_prefix(size);
        return field;
      }
      case 2: {
        RAG_ASSIGN_OR_RETURN(const uint64_t size, varint());
        if (size > rest_.size()) return damaged();
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return field;
      }
      default:
        return damaged();
    }
  }

 private:
  absl::StatusOr<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return damaged();
  }

  absl::Status damaged() const {
    return absl::InvalidArgumentError(
        str_cat("a field of ", name_, " is cut short or no protocol buffer's"));
  }

  std::string_view rest_;
  std::string_view name_;
};

struct Model {
  Vocabulary vocabulary;
  std::vector<float> scores;
  uint64_t model_type = 1;  // defaults are those of the format
  bool space_as_suffix = false;
  bool dummy_prefix = true;
  bool remove_spaces = true;
  bool escape_spaces = true;
  bool maps_characters = false;
};

absl::Status read_piece(std::string_view message, Model& model) {
  const size_t index = model.vocabulary.tokens.size();
  if (index >= Vocabulary::kTokensMax) {
    return absl::InvalidArgumentError(
        str_cat("there are more than ", Vocabulary::kTokensMax, " pieces"));
  }
  std::string spelling;
  float score = 0;
  auto type = PieceType::kNormal;
  for (Fields fields(message, str_cat("piece ", index)); !fields.done();) {
    RAG_ASSIGN_OR_RETURN(const Field field, fields.next());
    if (field.number == kPieceText) spelling = field.bytes;
    if (field.number == kPieceScore) std::memcpy(&score, &field.value, sizeof(score));
    if (field.number == kPieceType) type = static_cast<PieceType>(field.value);
  }
  TokenKind kind = TokenKind::kUnused;
  switch (type) {
    case PieceType::kNormal:
      kind = TokenKind::kText;
      break;
    case PieceType::kByte:
      if (!byte_of_spelling(spelling)) {
        return absl::InvalidArgumentError(
            str_cat("piece ", index, " is a byte, but not spelled so"));
      }
      kind = TokenKind::kByte;
      break;
    case PieceType::kUserDefined:
      kind = kind_of_added(spelling);
      break;
    case PieceType::kUnknown:
      model.vocabulary.unknown = static_cast<TokenId>(index);
      kind = TokenKind::kControl;
      break;
    case PieceType::kControl:
      kind = TokenKind::kControl;
      break;
    case PieceType::kUnused:
      break;
  }
  model.vocabulary.tokens.push_back({std::move(spelling), kind});
  model.scores.push_back(score);
  return absl::OkStatus();
}

absl::StatusOr<Model> read_model(std::string_view bytes) {
  Model model;
  for (Fields fields(bytes, "the model"); !fields.done();) {
    RAG_ASSIGN_OR_RETURN(const Field field, fields.next());
    if (field.number == kModelPieces) {
      RAG_RETURN_IF_ERROR(read_piece(field.bytes, model));
    } else if (field.number == kModelTrainer) {
      for (Fields trainer(field.bytes, "trainer_spec"); !trainer.done();) {
        RAG_ASSIGN_OR_RETURN(const Field part, trainer.next());
        if (part.number == kTrainerModelType) model.model_type = part.value;
        if (part.number == kTrainerSpaceAsSuffix) model.space_as_suffix = part.value != 0;
      }
    } else if (field.number == kModelNormalizer) {
      for (Fields normalizer(field.bytes, "normalizer_spec"); !normalizer.done();) {
        RAG_ASSIGN_OR_RETURN(const Field part, normalizer.next());
        if (part.number == kNormalizerCharacterMap) model.maps_characters = !part.bytes.empty();
        if (part.number == kNormalizerDummyPrefix) model.dummy_prefix = part.value != 0;
        if (part.number == kNormalizerRemoveSpaces) model.remove_spaces = part.value != 0;
        if (part.number == kNormalizerEscapeSpaces) model.escape_spaces = part.value != 0;
      }
    }
  }
  return model;
}

// Only what leaves a text as it is: else tokens would not give the prompt back.
absl::Status check_rules(const Model& model) {
  const auto refuse = [](std::string_view what) {
    return absl::UnimplementedError(str_cat(what, ", which is not supported"));
  };
  if (model.model_type != kModelTypeBpe) {
    return refuse(str_cat("trainer_spec.model_type is ", model.model_type, " (not BPE)"));
  }
  if (model.space_as_suffix) return refuse("trainer_spec.treat_whitespace_as_suffix is true");
  if (model.maps_characters) return refuse("normalizer_spec.precompiled_charsmap is set");
  if (model.remove_spaces) return refuse("normalizer_spec.remove_extra_whitespaces is true");
  if (!model.escape_spaces) return refuse("normalizer_spec.escape_whitespaces is false");
  if (model.vocabulary.tokens.empty()) return absl::InvalidArgumentError("there are no pieces");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> make_tokenizer(std::string_view bytes,
                                                                const SpecialSpellings& special) {
  RAG_ASSIGN_OR_RETURN(Model model, read_model(bytes));
  RAG_RETURN_IF_ERROR(check_rules(model));
  RAG_RETURN_IF_ERROR(add_merges_by_score(model.scores, model.vocabulary));
  set_special_tokens(special, model.vocabulary);
  return make_character_tokenizer(model.vocabulary, {.space_prefix = model.dummy_prefix});
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> load_sentence_piece_tokenizer(
    const std::string& path, const SpecialSpellings& special) {
  RAG_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  auto tokenizer = make_tokenizer(bytes, special);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(), str_cat(path, ": ", tokenizer.status().message()));
}

}  // namespace ragcache
