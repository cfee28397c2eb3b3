#include "services/worker/model/llama_weights.h"

#include <algorithm>
#include <map>
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

  // llama.cpp writes query and key rows so that neighbours 2i, 2i+1 rotate together; ours are
  // half-split: i rotates with i + head_dim/2.
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
};

absl::Status check_shape(const GgufFile& file, const std::string& name,
                         std::vector<uint64_t> shape) {
  absl::StatusOr<const GgufTensor*> tensor = file.tensor(name);
  if (!tensor.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", name, " is missing"));
  }
  if ((*tensor)->dimensions != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": tensor ", name, " has the shape {",
                     absl::StrJoin((*tensor)->dimensions, ", "), "}, must have {",
                     absl::StrJoin(shape, ", "), "}"));
  }
  const GgmlType type = (*tensor)->type;
  const int64_t elements = static_cast<int64_t>((*tensor)->element_count());
  if (static_cast<int64_t>(shape[0]) % elements_per_block(type) != 0 ||
      static_cast<int64_t>((*tensor)->data.size()) != storage_bytes(type, elements)) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", name, " has ",
                                                   (*tensor)->data.size(),
                                                   " bytes, not whole rows of its type"));
  }
  return absl::OkStatus();
}

// What the kernels read as the file stores it; all else becomes fp32.
kernels::WeightFormat format_of(GgmlType type) {
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
      return kernels::WeightFormat::kF32;
  }
}

void load_matrix(const GgufFile& file, const Matrix& matrix, kernels::ThreadPool& pool) {
  const GgufTensor& tensor = **file.tensor(matrix.name);
  const int64_t row_bytes = storage_bytes(tensor.type, matrix.columns);
  pool.run((matrix.rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    std::vector<float> values(matrix.columns);
    const int64_t end = std::min((task + 1) * kTaskRows, matrix.rows);
    for (int64_t row = task * kTaskRows; row < end; ++row) {
      const auto stored = tensor.data.subspan(row * row_bytes, row_bytes);
      if (matrix.to->format() == format_of(tensor.type)) {
        matrix.to->set_row(matrix.map(row), stored);
      } else {
        dequantize(tensor.type, stored, values);
        matrix.to->set_row(matrix.map(row), values);
      }
    }
  });
}

void load_vector(const GgufFile& file, const Vector& vector) {
  const GgufTensor& tensor = **file.tensor(vector.name);
  vector.to->resize(vector.size);
  dequantize(tensor.type, tensor.data, *vector.to);
}

}  // namespace

absl::StatusOr<LlamaWeights> load_llama_weights(const GgufFile& file, kernels::ThreadPool& pool) {
  LlamaWeights weights;
  RAG_ASSIGN_OR_RETURN(weights.config, read_model_config(file));
  const ModelConfig& config = weights.config;
  const int64_t width = config.width, feed_forward = config.feed_forward_width;
  const int64_t q_width = config.n_heads * config.head_dim;
  const int64_t kv_width = config.n_kv_heads * config.head_dim;
  weights.layers.resize(config.n_layers);

  std::vector<Matrix> matrices;
  std::vector<Vector> vectors{{"output_norm.weight", width, &weights.output_norm}};
  matrices.push_back({"token_embd.weight", config.vocabulary, width, &weights.embedding, {}});
  const bool tied = !file.tensor("output.weight").ok();
  if (!tied) matrices.push_back({"output.weight", config.vocabulary, width, &weights.head, {}});
  for (int64_t l = 0; l < config.n_layers; ++l) {
    LlamaWeights::Layer& layer = weights.layers[l];
    const std::string prefix = absl::StrCat("blk.", l, ".");
    const auto add = [&](const char* name, int64_t rows, int64_t columns,
                         kernels::PackedWeights* to, RowMap map) {
      matrices.push_back({absl::StrCat(prefix, name, ".weight"), rows, columns, to, map});
    };
    add("attn_q", q_width, width, &layer.qkv, {0, config.head_dim});
    add("attn_k", kv_width, width, &layer.qkv, {q_width, config.head_dim});
    add("attn_v", kv_width, width, &layer.qkv, {q_width + kv_width, 0});
    add("attn_output", width, q_width, &layer.attention_out, {});
    add("ffn_gate", feed_forward, width, &layer.gate_up, {0, 0});
    add("ffn_up", feed_forward, width, &layer.gate_up, {feed_forward, 0});
    add("ffn_down", width, feed_forward, &layer.down, {});
    vectors.push_back({prefix + "attn_norm.weight", width, &layer.attention_norm});
    vectors.push_back({prefix + "ffn_norm.weight", width, &layer.feed_forward_norm});
  }

  std::vector<std::string> known;
  for (const Matrix& matrix : matrices) {
    RAG_RETURN_IF_ERROR(
        check_shape(file, matrix.name,
                    {static_cast<uint64_t>(matrix.columns), static_cast<uint64_t>(matrix.rows)}));
    known.push_back(matrix.name);
  }
  for (const Vector& vector : vectors) {
    RAG_RETURN_IF_ERROR(check_shape(file, vector.name, {static_cast<uint64_t>(vector.size)}));
    known.push_back(vector.name);
  }
  std::sort(known.begin(), known.end());
  for (const GgufTensor& tensor : file.tensors()) {
    if (!std::binary_search(known.begin(), known.end(), tensor.name)) {
      return absl::UnimplementedError(absl::StrCat(file.path(), ": tensor ", tensor.name,
                                                   " is not known to architecture llama"));
    }
  }

  // A matrix whose parts are stored in different formats is kept in fp32.
  std::map<const kernels::PackedWeights*, kernels::WeightFormat> formats;
  for (const Matrix& matrix : matrices) {
    const kernels::WeightFormat format = format_of((*file.tensor(matrix.name))->type);
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
  for (const Matrix& matrix : matrices) load_matrix(file, matrix, pool);
  for (const Vector& vector : vectors) load_vector(file, vector);
  weights.fingerprint = file.fingerprint();
  return weights;
}

}  // namespace ragcache::worker
