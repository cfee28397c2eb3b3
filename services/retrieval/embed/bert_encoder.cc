#include "services/retrieval/embed/bert_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"
#include "common/weights/safetensors.h"
#include "kernels/add_layer_norm/add_layer_norm.h"
#include "kernels/bias_gelu/bias_gelu.h"
#include "kernels/linear/linear.h"
#include "kernels/self_attention/self_attention.h"

namespace ragcache::retrieval {
namespace {

using Values = std::vector<float>;

// y = x · weightᵀ + bias; whoever reads y adds the bias.
struct Linear {
  kernels::PackedWeights weight;  // [out, in]
  Values bias;                    // [out]
};

struct Norm {
  Values weight;  // [hidden]
  Values bias;    // [hidden]
};

struct Layer {
  Linear query_key_value;  // [3 * hidden, hidden]: one product for the three
  Linear attention_output;
  Norm attention_norm;
  Linear up;
  Linear down;
  Norm output_norm;
};

// Copies tensors out of the file; remembers the first that does not fit.
class TensorReader {
 public:
  explicit TensorReader(const SafetensorsFile& file) : file_(file) {}

  Values read(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t size = 1;
    for (const int64_t length : shape) size *= length;
    Values values(static_cast<size_t>(size));
    const auto found = file_.tensor(name);
    if (!found.ok()) {
      fail(found.status());
      return values;
    }
    const SafetensorsTensor& source = **found;
    const std::vector<int64_t> source_shape(source.shape.begin(), source.shape.end());
    if (source_shape != shape || source.type != SafetensorsType::kF32) {
      fail(absl::InvalidArgumentError(str_cat(file_.path(), ": tensor ", name, " is not float32 ",
                                              shape_text(shape), " but ",
                                              shape_text(source_shape))));
      return values;
    }
    std::memcpy(values.data(), source.data.data(), source.data.size());
    return values;
  }

  Linear linear(const std::vector<std::string>& names, int64_t in, int64_t out) {
    Linear linear = {.weight = {static_cast<int64_t>(names.size()) * out, in}};
    int64_t row = 0;
    for (const std::string& name : names) {
      const Values weight = read(name + ".weight", {out, in});
      for (int64_t i = 0; i < out; ++i, ++row) {
        linear.weight.set_row(row, std::span(weight).subspan(i * in, in));
      }
      const Values bias = read(name + ".bias", {out});
      linear.bias.insert(linear.bias.end(), bias.begin(), bias.end());
    }
    return linear;
  }

  Norm norm(const std::string& name, int64_t size) {
    return {.weight = read(name + ".weight", {size}), .bias = read(name + ".bias", {size})};
  }

  const absl::Status& status() const { return status_; }

 private:
  static std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (const int64_t size : shape) text += str_cat(text.size() > 1 ? ", " : "", size);
    return text + "]";
  }

  void fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const SafetensorsFile& file_;
  absl::Status status_;
};

// Appends the mean of the rows, scaled to length 1.
void append_pooled(const float* rows,  // [n_rows, width]
                   int64_t n_rows, int64_t width, std::vector<float>& vectors) {
  std::vector<double> sums(static_cast<size_t>(width));
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t i = 0; i < width; ++i) sums[i] += rows[row * width + i];
  }
  double square = 0;
  for (double& sum : sums) {
    sum /= static_cast<double>(n_rows);
    square += sum * sum;
  }
  // As torch.nn.functional.normalize: the bound keeps a zero vector zero.
  const double norm = std::max(std::sqrt(square), 1e-12);
  for (const double sum : sums) vectors.push_back(static_cast<float>(sum / norm));
}

}  // namespace

struct BertEncoder::Weights {
  Values words;          // [vocabulary, hidden]
  Values positions;      // [positions, hidden]
  Values sentence_type;  // [hidden]: sentences are all of type 0
  Norm norm;
  std::vector<Layer> layers;
};

// Activations of one call. Grown to the largest call so far: fresh pages cost as much as a tenth
// of the products.
struct BertEncoder::Buffers {
  std::vector<int64_t> begins;  // of the sequences, and the end of the last
  Values x;                     // [n_tokens, hidden]
  Values y;                     // [n_tokens, hidden]
  Values context;               // [n_tokens, hidden]
  Values query_key_value;       // [n_tokens, 3, hidden]
  Values hidden;                // [n_tokens, feed_forward]
  kernels::SelfAttentionScratch attention;

  void reserve(int64_t n_tokens, const BertConfig& config) {
    const auto grow = [n_tokens](Values& values, size_t width) {
      const size_t size = static_cast<size_t>(n_tokens) * width;
      if (values.size() < size) values.resize(size);
    };
    grow(x, config.hidden_size);
    grow(y, config.hidden_size);
    grow(context, config.hidden_size);
    grow(query_key_value, size_t{3} * config.hidden_size);
    grow(hidden, config.feed_forward_size);
  }
};

BertEncoder::BertEncoder(const BertConfig& config, const Digest& fingerprint,
                         std::unique_ptr<Weights> weights, int threads)
    : config_(config),
      fingerprint_(fingerprint),
      weights_(std::move(weights)),
      buffers_(std::make_unique<Buffers>()),
      pool_(threads) {}

BertEncoder::~BertEncoder() = default;

absl::StatusOr<std::unique_ptr<BertEncoder>> BertEncoder::load(const std::string& folder,
                                                               uint32_t threads) {
  RAG_ASSIGN_OR_RETURN(const BertConfig config, read_bert_config(folder));
  const std::string path = folder + "/model.safetensors";
  Digest weights_digest;
  {
    auto bytes = MappedFile::open(path);
    if (!bytes.ok()) return absl::FailedPreconditionError(bytes.status().message());
    weights_digest = Sha256().update(bytes->bytes()).finish();
  }
  RAG_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFile> file,
                       SafetensorsFile::open(path));
  TensorReader reader(*file);
  const int64_t width = config.hidden_size;
  auto weights = std::make_unique<Weights>();
  weights->words =
      reader.read("embeddings.word_embeddings.weight", {config.vocabulary_size, width});
  weights->positions =
      reader.read("embeddings.position_embeddings.weight", {config.positions, width});
  weights->sentence_type = reader.read("embeddings.token_type_embeddings.weight", {2, width});
  weights->sentence_type.resize(config.hidden_size);
  weights->norm = reader.norm("embeddings.LayerNorm", width);
  for (uint32_t i = 0; i < config.n_layers; ++i) {
    const std::string prefix = str_cat("encoder.layer.", i, ".");
    const std::string self = prefix + "attention.self.";
    weights->layers.push_back(
        {.query_key_value =
             reader.linear({self + "query", self + "key", self + "value"}, width, width),
         .attention_output = reader.linear({prefix + "attention.output.dense"}, width, width),
         .attention_norm = reader.norm(prefix + "attention.output.LayerNorm", width),
         .up = reader.linear({prefix + "intermediate.dense"}, width, config.feed_forward_size),
         .down = reader.linear({prefix + "output.dense"}, config.feed_forward_size, width),
         .output_norm = reader.norm(prefix + "output.LayerNorm", width)});
    RAG_RETURN_IF_ERROR(reader.status());
  }
  RAG_RETURN_IF_ERROR(reader.status());
  const Digest fingerprint =
      Sha256()
          .update(weights_digest)
          .update(str_cat("bert heads=", config.n_heads, " tokens=", config.max_tokens,
                          " epsilon=", config.norm_epsilon, " mean normalised"))
          .finish();
  const int all = kernels::ThreadPool::default_threads();
  return std::unique_ptr<BertEncoder>(new BertEncoder(
      config, fingerprint, std::move(weights), threads > 0 ? static_cast<int>(threads) : all));
}

void BertEncoder::encode(std::span<const std::span<const uint32_t>> sequences,
                         std::vector<float>& vectors) {
  const kernels::ScopedFlushDenormals flush;
  Buffers& buffers = *buffers_;
  buffers.begins.assign(1, 0);
  for (const auto& sequence : sequences) {
    RAG_CHECK(!sequence.empty() && sequence.size() <= config_.max_tokens);
    buffers.begins.push_back(buffers.begins.back() + static_cast<int64_t>(sequence.size()));
  }
  const int64_t n_tokens = buffers.begins.back();
  if (n_tokens == 0) return;
  buffers.reserve(n_tokens, config_);
  const int64_t width = config_.hidden_size;
  float* x = buffers.x.data();
  float* y = buffers.y.data();
  const auto linear = [&](const Values& in, const Linear& layer, Values& out) {
    kernels::linear(in.data(), n_tokens, layer.weight, out.data(), pool_);
  };
  const auto add_norm = [&](const Values& bias, const Norm& norm) {
    const kernels::LayerNorm layer_norm = {.weight = norm.weight.data(),
                                           .bias = norm.bias.data(),
                                           .epsilon = static_cast<float>(config_.norm_epsilon)};
    kernels::add_layer_norm(x, y, bias.data(), layer_norm, n_tokens, width, pool_);
  };

  int64_t token = 0;
  for (const auto& sequence : sequences) {
    for (size_t position = 0; position < sequence.size(); ++position, ++token) {
      RAG_CHECK(sequence[position] < config_.vocabulary_size);
      std::copy_n(weights_->words.data() + sequence[position] * width, width, x + token * width);
      std::copy_n(weights_->positions.data() + position * width, width, y + token * width);
    }
  }
  add_norm(weights_->sentence_type, weights_->norm);
  for (const Layer& layer : weights_->layers) {
    linear(buffers.x, layer.query_key_value, buffers.query_key_value);
    kernels::self_attention({.query_key_value = buffers.query_key_value.data(),
                             .bias = layer.query_key_value.bias.data(),
                             .begins = buffers.begins,
                             .n_heads = config_.n_heads,
                             .head_dim = config_.head_dim(),
                             .y = buffers.context.data()},
                            buffers.attention, pool_);
    linear(buffers.context, layer.attention_output, buffers.y);
    add_norm(layer.attention_output.bias, layer.attention_norm);
    linear(buffers.x, layer.up, buffers.hidden);
    kernels::bias_gelu(buffers.hidden.data(), layer.up.bias.data(), n_tokens,
                       config_.feed_forward_size, pool_);
    linear(buffers.hidden, layer.down, buffers.y);
    add_norm(layer.down.bias, layer.output_norm);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    append_pooled(x + buffers.begins[i] * width, static_cast<int64_t>(sequences[i].size()), width,
                  vectors);
  }
}

}  // namespace ragcache::retrieval
