#include "common/weights/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <optional>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Far above what real files hold (a few hundred keys, some ten thousand tensors, a vocabulary of
// 256 Ki); they bound the memory that a hostile file can ask for.
constexpr uint64_t kKeysMax = 1 << 16;
constexpr uint64_t kTensorsMax = 1 << 18;
constexpr uint64_t kArrayElementsMax = 1 << 24;
constexpr uint64_t kKeyBytesMax = 1 << 16;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kElementsMax = uint64_t{1} << 48;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = 1 << 20;

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

std::string type_name(uint32_t type) {
  constexpr std::array<std::string_view, 31> kNames = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
  if (type < kNames.size()) return std::string(kNames[type]);
  return str_cat("number ", type);
}

// Names come from the file: only printable ASCII goes into a message, and not much of it.
std::string printable(std::string_view name) {
  constexpr size_t kShownMax = 64;
  std::string shown;
  for (const char c : name.substr(0, kShownMax)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  if (name.size() > kShownMax) shown += "...";
  return shown;
}

// A cursor over the file. Each read names what it reads, so that an error can tell.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  absl::StatusOr<T> read(std::string_view what) {
    RAG_RETURN_IF_ERROR(require(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  absl::StatusOr<std::string> read_string(std::string_view what, uint64_t bytes_max) {
    RAG_ASSIGN_OR_RETURN(const uint64_t length, read<uint64_t>(what));
    if (length > bytes_max) {
      return absl::InvalidArgumentError(str_cat("the length of ", what, " at byte ",
                                                position_ - sizeof(length), " is ", length,
                                                ", more than ", bytes_max));
    }
    RAG_RETURN_IF_ERROR(require(length, what));
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
    position_ += length;
    return text;
  }

 private:
  absl::Status require(uint64_t n_bytes, std::string_view what) const {
    if (n_bytes <= remaining()) return absl::OkStatus();
    return absl::InvalidArgumentError(str_cat(what, " needs ", n_bytes, " bytes at byte ",
                                              position_, " of a file of ", bytes_.size()));
  }

  std::span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

absl::StatusOr<bool> read_bool(Reader& reader, std::string_view what) {
  RAG_ASSIGN_OR_RETURN(const uint8_t byte, reader.read<uint8_t>(what));
  if (byte > 1) {
    return absl::InvalidArgumentError(str_cat(what, " is a bool of value ", byte));
  }
  return byte == 1;
}

template <typename Stored>
absl::StatusOr<GgufArray> read_number_array(Reader& reader, uint64_t count, std::string_view what) {
  using Element = std::conditional_t<std::floating_point<Stored>, double, int64_t>;
  // Never reserve more than the file can fill.
  if (count > reader.remaining() / sizeof(Stored)) {
    return absl::InvalidArgumentError(str_cat(what, " has ", count, " elements of ", sizeof(Stored),
                                              " bytes, but only ", reader.remaining(),
                                              " bytes follow"));
  }
  std::vector<Element> elements;
  elements.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    RAG_ASSIGN_OR_RETURN(const Stored element, reader.read<Stored>(what));
    if constexpr (std::same_as<Stored, uint64_t>) {
      if (element > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return absl::InvalidArgumentError(
            str_cat(what, " has the element ", element, ", beyond a signed 64-bit integer"));
      }
    }
    elements.push_back(static_cast<Element>(element));
  }
  return GgufArray(std::move(elements));
}

absl::StatusOr<GgufArray> read_array(Reader& reader, std::string_view what) {
  RAG_ASSIGN_OR_RETURN(const uint32_t type, reader.read<uint32_t>(what));
  RAG_ASSIGN_OR_RETURN(const uint64_t count, reader.read<uint64_t>(what));
  if (count > kArrayElementsMax) {
    return absl::InvalidArgumentError(
        str_cat(what, " has ", count, " elements, more than ", kArrayElementsMax));
  }
  switch (static_cast<ValueType>(type)) {
    case ValueType::kUint8:
      return read_number_array<uint8_t>(reader, count, what);
    case ValueType::kInt8:
      return read_number_array<int8_t>(reader, count, what);
    case ValueType::kUint16:
      return read_number_array<uint16_t>(reader, count, what);
    case ValueType::kInt16:
      return read_number_array<int16_t>(reader, count, what);
    case ValueType::kUint32:
      return read_number_array<uint32_t>(reader, count, what);
    case ValueType::kInt32:
      return read_number_array<int32_t>(reader, count, what);
    case ValueType::kUint64:
      return read_number_array<uint64_t>(reader, count, what);
    case ValueType::kInt64:
      return read_number_array<int64_t>(reader, count, what);
    case ValueType::kFloat32:
      return read_number_array<float>(reader, count, what);
    case ValueType::kFloat64:
      return read_number_array<double>(reader, count, what);
    case ValueType::kBool: {
      std::vector<int64_t> elements;
      for (uint64_t i = 0; i < count; ++i) {
        RAG_ASSIGN_OR_RETURN(const bool element, read_bool(reader, what));
        elements.push_back(element);
      }
      return GgufArray(std::move(elements));
    }
    case ValueType::kString: {
      std::vector<std::string> elements;
      for (uint64_t i = 0; i < count; ++i) {
        RAG_ASSIGN_OR_RETURN(std::string element, reader.read_string(what, reader.remaining()));
        elements.push_back(std::move(element));
      }
      return GgufArray(std::move(elements));
    }
    case ValueType::kArray:
      return absl::InvalidArgumentError(str_cat(what, " is an array of arrays"));
  }
  return absl::InvalidArgumentError(str_cat(what, " has elements of unknown type ", type));
}

// Widens a number of the file to the type that GgufValue keeps.
template <typename Kept, typename Stored>
absl::StatusOr<GgufValue> read_number(Reader& reader, std::string_view what) {
  RAG_ASSIGN_OR_RETURN(const Stored value, reader.read<Stored>(what));
  return GgufValue(std::in_place_type<Kept>, static_cast<Kept>(value));
}

absl::StatusOr<GgufValue> read_value(Reader& reader, std::string_view what) {
  RAG_ASSIGN_OR_RETURN(const uint32_t type, reader.read<uint32_t>(what));
  switch (static_cast<ValueType>(type)) {
    case ValueType::kUint8:
      return read_number<uint64_t, uint8_t>(reader, what);
    case ValueType::kUint16:
      return read_number<uint64_t, uint16_t>(reader, what);
    case ValueType::kUint32:
      return read_number<uint64_t, uint32_t>(reader, what);
    case ValueType::kUint64:
      return read_number<uint64_t, uint64_t>(reader, what);
    case ValueType::kInt8:
      return read_number<int64_t, int8_t>(reader, what);
    case ValueType::kInt16:
      return read_number<int64_t, int16_t>(reader, what);
    case ValueType::kInt32:
      return read_number<int64_t, int32_t>(reader, what);
    case ValueType::kInt64:
      return read_number<int64_t, int64_t>(reader, what);
    case ValueType::kFloat32:
      return read_number<double, float>(reader, what);
    case ValueType::kFloat64:
      return read_number<double, double>(reader, what);
    case ValueType::kBool: {
      RAG_ASSIGN_OR_RETURN(const bool value, read_bool(reader, what));
      return GgufValue(std::in_place_type<bool>, value);
    }
    case ValueType::kString: {
      RAG_ASSIGN_OR_RETURN(std::string value, reader.read_string(what, reader.remaining()));
      return GgufValue(std::in_place_type<std::string>, std::move(value));
    }
    case ValueType::kArray: {
      RAG_ASSIGN_OR_RETURN(GgufArray value, read_array(reader, what));
      return GgufValue(std::in_place_type<GgufArray>, std::move(value));
    }
  }
  return absl::InvalidArgumentError(str_cat(what, " has the unknown type ", type));
}

// A tensor's entry in the file's directory; its data is placed once the directory has ended.
struct TensorEntry {
  Tensor tensor;
  uint64_t offset;
  uint64_t n_bytes;
};

absl::StatusOr<TensorEntry> read_tensor_entry(Reader& reader, uint64_t index) {
  RAG_ASSIGN_OR_RETURN(std::string name,
                       reader.read_string(str_cat("name of tensor ", index), kKeyBytesMax));
  const std::string what = str_cat("tensor ", printable(name));
  RAG_ASSIGN_OR_RETURN(const uint32_t n_dimensions,
                       reader.read<uint32_t>(str_cat("dimension count of ", what)));
  if (n_dimensions < 1 || n_dimensions > kDimensionsMax) {
    return absl::InvalidArgumentError(
        str_cat(what, " has ", n_dimensions, " dimensions, outside 1 to ", kDimensionsMax));
  }
  std::vector<uint64_t> dimensions;
  uint64_t n_elements = 1;
  for (uint32_t i = 0; i < n_dimensions; ++i) {
    RAG_ASSIGN_OR_RETURN(const uint64_t dimension,
                         reader.read<uint64_t>(str_cat("dimensions of ", what)));
    if (dimension == 0 || dimension > kElementsMax / n_elements) {
      return absl::InvalidArgumentError(str_cat("dimension ", i, " of ", what, " is ", dimension,
                                                ": a tensor has 1 to ", kElementsMax, " elements"));
    }
    n_elements *= dimension;
    dimensions.push_back(dimension);
  }
  RAG_ASSIGN_OR_RETURN(const uint32_t type, reader.read<uint32_t>(str_cat("type of ", what)));
  RAG_ASSIGN_OR_RETURN(const uint64_t offset, reader.read<uint64_t>(str_cat("offset of ", what)));
  const std::optional<BlockLayout> layout = block_layout(static_cast<GgmlType>(type));
  if (!layout) {
    return absl::InvalidArgumentError(
        str_cat(what, " has the element type ", type_name(type),
                ", which is not supported (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, "
                "Q3_K, Q4_K, Q5_K, Q6_K are)"));
  }
  if (dimensions[0] % layout->elements != 0) {
    return absl::InvalidArgumentError(str_cat(what, " has rows of ", dimensions[0],
                                              " elements, not a multiple of the block of ",
                                              layout->elements, " of ", type_name(type)));
  }
  const uint64_t n_bytes = n_elements / layout->elements * layout->bytes;
  return TensorEntry{
      {std::move(name), static_cast<GgmlType>(type), std::move(dimensions), {}}, offset, n_bytes};
}

// Two tensors over the same bytes: the directory is damaged, whatever else it says.
absl::Status check_no_overlap(std::span<const Tensor> tensors) {
  std::vector<const Tensor*> by_place;
  for (const Tensor& tensor : tensors) by_place.push_back(&tensor);
  std::ranges::sort(by_place, {}, [](const Tensor* tensor) { return tensor->data.data(); });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const std::span<const uint8_t> before = by_place[i - 1]->data;
    if (before.data() + before.size() > by_place[i]->data.data()) {
      return absl::InvalidArgumentError(str_cat("tensor ", printable(by_place[i]->name),
                                                " overlaps tensor ",
                                                printable(by_place[i - 1]->name)));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<const T*> find_as(const GgufMetadata& metadata, std::string_view key,
                                 std::string_view type) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) {
    return absl::NotFoundError(str_cat("GGUF metadata has no ", key));
  }
  if (const T* value = std::get_if<T>(&found->second)) return value;
  return absl::InvalidArgumentError(str_cat("GGUF metadata ", key, " is not ", type));
}

template <typename T>
absl::StatusOr<std::span<const T>> find_array(const GgufMetadata& metadata, std::string_view key,
                                              std::string_view type) {
  RAG_ASSIGN_OR_RETURN(const GgufArray* array, find_as<GgufArray>(metadata, key, type));
  if (const auto* elements = std::get_if<std::vector<T>>(array)) return std::span(*elements);
  return absl::InvalidArgumentError(str_cat("GGUF metadata ", key, " is not ", type));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::open(const std::string& path) {
  RAG_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  std::shared_ptr<GgufFile> gguf(new GgufFile(path, std::move(file)));
  if (const absl::Status status = gguf->parse(); !status.ok()) {
    return absl::InvalidArgumentError(str_cat(path, " is no usable GGUF file: ", status.message()));
  }
  return gguf;
}

absl::Status GgufFile::parse() {
  const std::span<const uint8_t> bytes = file_.bytes();
  Reader reader(bytes);
  RAG_ASSIGN_OR_RETURN(const auto magic, (reader.read<std::array<char, 4>>("magic")));
  if (std::string_view(magic.data(), magic.size()) != "GGUF") {
    return absl::InvalidArgumentError("magic is not GGUF");
  }
  RAG_ASSIGN_OR_RETURN(const uint32_t version, reader.read<uint32_t>("version"));
  if (version != 2 && version != 3) {
    return absl::InvalidArgumentError(str_cat("version ", version, " is neither 2 nor 3"));
  }
  RAG_ASSIGN_OR_RETURN(const uint64_t n_tensors, reader.read<uint64_t>("tensor count"));
  RAG_ASSIGN_OR_RETURN(const uint64_t n_keys, reader.read<uint64_t>("metadata count"));
  if (n_tensors > kTensorsMax) {
    return absl::InvalidArgumentError(
        str_cat("tensor count ", n_tensors, " is more than ", kTensorsMax));
  }
  if (n_keys > kKeysMax) {
    return absl::InvalidArgumentError(
        str_cat("metadata count ", n_keys, " is more than ", kKeysMax));
  }

  for (uint64_t i = 0; i < n_keys; ++i) {
    RAG_ASSIGN_OR_RETURN(std::string key,
                         reader.read_string(str_cat("metadata key ", i), kKeyBytesMax));
    const std::string what = str_cat("metadata ", printable(key));
    RAG_ASSIGN_OR_RETURN(GgufValue value, read_value(reader, what));
    if (!metadata_.emplace(std::move(key), std::move(value)).second) {
      return absl::InvalidArgumentError(str_cat(what, " occurs twice"));
    }
  }

  uint64_t alignment = kAlignmentDefault;
  if (metadata_.contains("general.alignment")) {
    RAG_ASSIGN_OR_RETURN(alignment, get_uint("general.alignment"));
    if (!std::has_single_bit(alignment) || alignment > kAlignmentMax) {
      return absl::InvalidArgumentError(
          str_cat("general.alignment ", alignment, " is not a power of two up to ", kAlignmentMax));
    }
  }

  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    RAG_ASSIGN_OR_RETURN(TensorEntry entry, read_tensor_entry(reader, i));
    entries.push_back(std::move(entry));
  }

  // The alignment is a small power of two, so rounding up cannot overflow; a directory that ends
  // with the file leaves an empty data section.
  const uint64_t data_start =
      std::min<uint64_t>((reader.position() + alignment - 1) & ~(alignment - 1), bytes.size());
  const std::span<const uint8_t> data = bytes.subspan(data_start);
  for (TensorEntry& entry : entries) {
    const std::string what = str_cat("tensor ", printable(entry.tensor.name));
    if (entry.offset % alignment != 0) {
      return absl::InvalidArgumentError(
          str_cat("offset ", entry.offset, " of ", what, " is not a multiple of ", alignment));
    }
    if (entry.offset > data.size() || entry.n_bytes > data.size() - entry.offset) {
      return absl::InvalidArgumentError(str_cat(what, " needs ", entry.n_bytes, " bytes at offset ",
                                                entry.offset, " of a data section of ",
                                                data.size()));
    }
    entry.tensor.data = data.subspan(entry.offset, entry.n_bytes);
    if (!tensor_by_name_.emplace(entry.tensor.name, tensors_.size()).second) {
      return absl::InvalidArgumentError(str_cat(what, " occurs twice"));
    }
    tensors_.push_back(std::move(entry.tensor));
  }
  return check_no_overlap(tensors_);
}

absl::StatusOr<uint64_t> GgufFile::get_uint(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end()) {
    if (const int64_t* value = std::get_if<int64_t>(&found->second)) {
      if (*value >= 0) return static_cast<uint64_t>(*value);
      return absl::InvalidArgumentError(str_cat("GGUF metadata ", key, " is negative: ", *value));
    }
  }
  RAG_ASSIGN_OR_RETURN(const uint64_t* value, find_as<uint64_t>(metadata_, key, "an integer"));
  return *value;
}

absl::StatusOr<double> GgufFile::get_float(std::string_view key) const {
  RAG_ASSIGN_OR_RETURN(const double* value, find_as<double>(metadata_, key, "a float"));
  return *value;
}

absl::StatusOr<bool> GgufFile::get_bool(std::string_view key) const {
  RAG_ASSIGN_OR_RETURN(const bool* value, find_as<bool>(metadata_, key, "a bool"));
  return *value;
}

absl::StatusOr<std::string> GgufFile::get_string(std::string_view key) const {
  RAG_ASSIGN_OR_RETURN(const std::string* value, find_as<std::string>(metadata_, key, "a string"));
  return *value;
}

absl::StatusOr<std::span<const std::string>> GgufFile::get_strings(std::string_view key) const {
  return find_array<std::string>(metadata_, key, "an array of strings");
}

absl::StatusOr<std::span<const int64_t>> GgufFile::get_ints(std::string_view key) const {
  return find_array<int64_t>(metadata_, key, "an array of integers");
}

absl::StatusOr<std::span<const double>> GgufFile::get_floats(std::string_view key) const {
  return find_array<double>(metadata_, key, "an array of numbers");
}

absl::StatusOr<const Tensor*> GgufFile::tensor(std::string_view name) const {
  const auto found = tensor_by_name_.find(name);
  if (found == tensor_by_name_.end()) {
    return absl::NotFoundError(str_cat(path_, " has no tensor ", name));
  }
  return &tensors_[found->second];
}

}  // namespace ragcache
