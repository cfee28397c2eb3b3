#include "common/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/status.h"
#include "common/strings.h"

namespace ragcache {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is read in place");

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr size_t kTensorsMax = 1 << 18;
constexpr size_t kDimensionsMax = 16;
constexpr uint64_t kElementsMax = uint64_t{1} << 48;

struct TypeSize {
  std::string_view name;
  uint64_t n_bytes;
  std::optional<SafetensorsType> read_as;
};

constexpr TypeSize kTypes[] = {{"F32", 4, SafetensorsType::kF32},
                               {"F16", 2, SafetensorsType::kF16},
                               {"BF16", 2, SafetensorsType::kBf16},
                               {"F64", 8, {}},
                               {"I64", 8, {}},
                               {"I32", 4, {}},
                               {"I16", 2, {}},
                               {"I8", 1, {}},
                               {"U64", 8, {}},
                               {"U32", 4, {}},
                               {"U16", 2, {}},
                               {"U8", 1, {}},
                               {"BOOL", 1, {}},
                               {"F8_E4M3", 1, {}},
                               {"F8_E5M2", 1, {}}};

absl::StatusOr<std::vector<uint64_t>> read_uints(const nlohmann::json& entry, const char* field,
                                                 const std::string& what) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_array() || found->size() > kDimensionsMax) {
    return absl::InvalidArgumentError(
        str_cat(field, " of ", what, " is not an array of up to ", kDimensionsMax, " numbers"));
  }
  std::vector<uint64_t> numbers;
  for (const nlohmann::json& number : *found) {
    if (!number.is_number_unsigned()) {
      return absl::InvalidArgumentError(
          str_cat(field, " of ", what, " has an element that is no unsigned integer"));
    }
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

}  // namespace

uint64_t SafetensorsTensor::element_count() const {
  uint64_t count = 1;
  for (const uint64_t dimension : shape) count *= dimension;
  return count;
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open(
    const std::string& path) {
  RAG_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  std::shared_ptr<SafetensorsFile> tensors(new SafetensorsFile(path, std::move(file)));
  if (const absl::Status status = tensors->parse(); !status.ok()) {
    return absl::InvalidArgumentError(
        str_cat(path, " is no usable safetensors file: ", status.message()));
  }
  return tensors;
}

absl::Status SafetensorsFile::parse() {
  const std::span<const uint8_t> bytes = file_.bytes();
  uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) {
    return absl::InvalidArgumentError(
        str_cat("header length needs 8 bytes of a file of ", bytes.size()));
  }
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  if (header_size > kHeaderBytesMax || header_size > bytes.size() - sizeof(header_size)) {
    return absl::InvalidArgumentError(str_cat("header length ", header_size,
                                              " does not fit a file of ", bytes.size(),
                                              " bytes, or is more than ", kHeaderBytesMax));
  }
  const auto header_bytes = bytes.subspan(sizeof(header_size), header_size);
  const std::span<const uint8_t> data = bytes.subspan(sizeof(header_size) + header_size);
  const nlohmann::json header = nlohmann::json::parse(header_bytes.begin(), header_bytes.end(),
                                                      nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || header.size() > kTensorsMax) {
    return absl::InvalidArgumentError(
        str_cat("header is not a JSON object of up to ", kTensorsMax, " entries"));
  }

  std::vector<std::pair<uint64_t, uint64_t>> taken;  // begin and end of what is not empty
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string what = str_cat(
        "tensor ",
        nlohmann::json(name.substr(0, 64))
            .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace));
    const auto type_name = entry.is_object() ? entry.find("dtype") : entry.end();
    if (!entry.is_object() || type_name == entry.end() || !type_name->is_string()) {
      return absl::InvalidArgumentError(str_cat("dtype of ", what, " is missing"));
    }
    RAG_ASSIGN_OR_RETURN(std::vector<uint64_t> shape, read_uints(entry, "shape", what));
    RAG_ASSIGN_OR_RETURN(const auto offsets, read_uints(entry, "data_offsets", what));
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) {
      return absl::InvalidArgumentError(str_cat("data_offsets of ", what,
                                                " are not a range within the data section of ",
                                                data.size(), " bytes"));
    }
    uint64_t n_elements = 1;
    for (const uint64_t dimension : shape) {
      if (n_elements != 0 && dimension > kElementsMax / n_elements) {
        return absl::InvalidArgumentError(
            str_cat("shape of ", what, " has more than ", kElementsMax, " elements"));
      }
      n_elements *= dimension;
    }
    const TypeSize* type = nullptr;
    for (const TypeSize& known : kTypes) {
      if (known.name == type_name->get_ref<const std::string&>()) type = &known;
    }
    if (type != nullptr && offsets[1] - offsets[0] != n_elements * type->n_bytes) {
      return absl::InvalidArgumentError(str_cat("data_offsets of ", what, " span ",
                                                offsets[1] - offsets[0], " bytes, its shape needs ",
                                                n_elements * type->n_bytes));
    }
    if (offsets[0] < offsets[1]) taken.emplace_back(offsets[0], offsets[1]);
    if (type == nullptr || !type->read_as) {
      unread_types_.emplace(name, type_name->get<std::string>());
      continue;
    }
    tensors_.emplace(name, SafetensorsTensor{*type->read_as, std::move(shape),
                                             data.subspan(offsets[0], offsets[1] - offsets[0])});
  }
  std::ranges::sort(taken);
  for (size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second) {
      return absl::InvalidArgumentError(
          str_cat("data_offsets of two tensors overlap at byte ", taken[i].first));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  for (const auto& [name, type] : unread_types_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<const SafetensorsTensor*> SafetensorsFile::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  const auto unread = unread_types_.find(name);
  if (unread != unread_types_.end()) {
    return absl::InvalidArgumentError(str_cat(path_, ": tensor ", name, " has the dtype ",
                                              unread->second,
                                              ", which is not supported (F32, F16, BF16 are)"));
  }
  return absl::NotFoundError(str_cat(path_, " has no tensor ", name));
}

}  // namespace ragcache
