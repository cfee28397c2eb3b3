#include "services/worker/model/llama_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "services/worker/model/dequantize.h"

namespace ragcache::worker {
namespace {

constexpr int64_t kTaskRows = 64;

// Where a row of a file's tensor goes in the fused matrix.
struct RowMap {
  int64_t first_row = 0;
  int64_t rotary_head_dim = 0;  // 0: rows keep their order

  // From rows whose neighbours 2i, 2i+1 rotate together to half-split ones: i and i + head_dim/2.
  int64_t operator()(int64_t row) const {
    if (rotary_head_dim == 0) return first_row + row;
    const int64_t in_head = row % rotary_head_dim;
    return first_row + row - in_head + in_head % 2 * (rotary_head_dim / 2) + in_head / 2;
  }
};

struct Matrix {
  std::string name;
  int64_t rows;
  int64_t columns;
  kernels::PackedWeights* to;
  RowMap map;
};

struct Vector {
  std::string name;
  int64_t size;
  std::vector<float>* to;
  RowMap map = {};
};

absl::Status check_shape(const ModelFiles& files, const std::string& name,
                         std::vector<uint64_t> shape) {
  absl::StatusOr<const Tensor*> tensor = files.tensor(name);
  if (!tensor.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(files.path(), ": tensor ", name, " is missing"));
  }
  if ((*tensor)->dimensions != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.path(), ": tensor ", name, " has the shape {",
                     absl::StrJoin((*tensor)->dimensions, ", "), "}, must have {",
                     absl::StrJoin(shape, ", "), "}"));
  }
  return absl::OkStatus();
}

// The format in which the kernels read a matrix as the file stores it, if there is one.
std::optional<kernels::WeightFormat> stored_format(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return kernels::WeightFormat::kF16;
    case GgmlType::kQ8_0:
      return kernels::WeightFormat::kQ8_0;
    case GgmlType::kQ4_0:
      return kernels::WeightFormat::kQ4_0;
    case GgmlType::kQ4_1:
      return kernels::WeightFormat::kQ4_1;
    default:
      return std::nullopt;
  }
}

void load_matrix(const ModelFiles& files, const Matrix& matrix, kernels::ThreadPool& pool) {
  const Tensor& tensor = **files.tensor(matrix.name);
  const int64_t row_bytes = storage_bytes(tensor.type, matrix.columns);
  pool.run((matrix.rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    std::vector<float> values(matrix.columns);
    const int64_t end = std::min((task + 1) * kTaskRows, matrix.rows);
    for (int64_t row = task * kTaskRows; row < end; ++row) {
      const auto stored = tensor.data.subspan(row * row_bytes, row_bytes);
      if (matrix.to->format() == stored_format(tensor.type)) {
        matrix.to->set_row(matrix.map(row), stored);
      } else {
        dequantize(tensor.type, stored, values);
        matrix.to->set_row(matrix.map(row), values);
      }
    }
  });
}

void load_vector(const ModelFiles& files, const Vector& vector) {
  const Tensor& tensor = **files.tensor(vector.name);
  std::vector<float> values(vector.size);
  dequantize(tensor.type, tensor.data, values);
  // The last of a vector's parts is its end.
  vector.to->resize(std::max<size_t>(vector.to->size(), vector.map(vector.size - 1) + 1));
  for (int64_t i = 0; i < vector.size; ++i) (*vector.to)[vector.map(i)] = values[i];
}

}  // namespace

absl::StatusOr<LlamaWeights> load_llama_weights(const ModelFiles& files,
                                                kernels::ThreadPool& pool) {
  LlamaWeights weights;
  weights.config = files.config();
  const ModelConfig& config = weights.config;
  const int64_t width = config.width, feed_forward = config.feed_forward_width;
  const int64_t q_width = config.n_heads * config.head_dim;
  const int64_t kv_width = config.n_kv_heads * config.head_dim;
  const int64_t rotary = config.rotary_rows == RotaryRows::kNeighbours ? config.head_dim : 0;
  weights.layers.resize(config.n_layers);

  std::vector<Matrix> matrices;
  std::vector<Vector> vectors{{"output_norm.weight", width, &weights.output_norm}};
  matrices.push_back({"token_embd.weight", config.vocabulary, width, &weights.embedding, {}});
  const bool tied = !files.tensor("output.weight").ok();
  if (!tied) matrices.push_back({"output.weight", config.vocabulary, width, &weights.head, {}});
  for (int64_t l = 0; l < config.n_layers; ++l) {
    LlamaWeights::Layer& layer = weights.layers[l];
    const std::string prefix = absl::StrCat("blk.", l, ".");
    const auto add = [&](const char* name, int64_t rows, int64_t columns,
                         kernels::PackedWeights* to, RowMap map) {
      matrices.push_back({absl::StrCat(prefix, name, ".weight"), rows, columns, to, map});
    };
    add("attn_q", q_width, width, &layer.qkv, {0, rotary});
    add("attn_k", kv_width, width, &layer.qkv, {q_width, rotary});
    add("attn_v", kv_width, width, &layer.qkv, {q_width + kv_width, 0});
    add("attn_output", width, q_width, &layer.attention_out, {});
    add("ffn_gate", feed_forward, width, &layer.gate_up, {0, 0});
    add("ffn_up", feed_forward, width, &layer.gate_up, {feed_forward, 0});
    add("ffn_down", width, feed_forward, &layer.down, {});
    vectors.push_back({prefix + "attn_norm.weight", width, &layer.attention_norm});
    vectors.push_back({prefix + "ffn_norm.weight", width, &layer.feed_forward_norm});
    if (!config.qkv_bias) continue;
    std::vector<float>* bias = &layer.qkv_bias;
    vectors.push_back({prefix + "attn_q.bias", q_width, bias, {0, rotary}});
    vectors.push_back({prefix + "attn_k.bias", kv_width, bias, {q_width, rotary}});
    vectors.push_back({prefix + "attn_v.bias", kv_width, bias, {q_width + kv_width, 0}});
  }

  std::vector<std::string> known;
  for (const Matrix& matrix : matrices) {
    RAG_RETURN_IF_ERROR(
        check_shape(files, matrix.name,
                    {static_cast<uint64_t>(matrix.columns), static_cast<uint64_t>(matrix.rows)}));
    known.push_back(matrix.name);
  }
  for (const Vector& vector : vectors) {
    RAG_RETURN_IF_ERROR(check_shape(files, vector.name, {static_cast<uint64_t>(vector.size)}));
    known.push_back(vector.name);
  }
  std::sort(known.begin(), known.end());
  for (const Tensor& tensor : files.tensors()) {
    if (!std::binary_search(known.begin(), known.end(), tensor.name)) {
      return absl::UnimplementedError(absl::StrCat(files.path(), ": tensor ", tensor.name,
                                                   " is not known to architecture llama"));
    }
  }

  // A matrix whose parts are stored in different formats is kept in fp32.
  std::map<const kernels::PackedWeights*, kernels::WeightFormat> formats;
  for (const Matrix& matrix : matrices) {
    const kernels::WeightFormat format =
        stored_format((*files.tensor(matrix.name))->type).value_or(kernels::WeightFormat::kF32);
    const auto [known_format, first] = formats.emplace(matrix.to, format);
    if (known_format->second != format) known_format->second = kernels::WeightFormat::kF32;
  }
  const auto allocate = [&](kernels::PackedWeights& matrix, int64_t out, int64_t in) {
    matrix = kernels::PackedWeights(out, in, formats.at(&matrix));
  };
  allocate(weights.embedding, config.vocabulary, width);
  if (!tied) allocate(weights.head, config.vocabulary, width);
  for (LlamaWeights::Layer& layer : weights.layers) {
    allocate(layer.qkv, config.qkv_width(), width);
    allocate(layer.attention_out, width, q_width);
    allocate(layer.gate_up, 2 * feed_forward, width);
    allocate(layer.down, width, feed_forward);
  }
  for (const Matrix& matrix : matrices) load_matrix(files, matrix, pool);
  for (const Vector& vector : vectors) load_vector(files, vector);
  weights.fingerprint = files.fingerprint();
  return weights;
}

}  // namespace ragcache::worker
