#include "services/retrieval/embed/bert_encoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/strings.h"
#include "common/weights/mapped_file.h"
#include "common/weights/safetensors.h"

namespace ragcache::retrieval {
namespace {

// y = x · weight^T + bias. The weight lies transposed, as the product reads it.
struct Linear {
  at::Tensor weight;  // [in, out]
  at::Tensor bias;    // [out]

  // x: [n_tokens, in], out: [n_tokens, out]
  void apply(const at::Tensor& x, at::Tensor& out) const { at::addmm_out(out, bias, x, weight); }
};

struct Norm {
  at::Tensor weight;  // [hidden]
  at::Tensor bias;    // [hidden]
};

struct Layer {
  Linear query_key_value;  // [hidden, 3 * hidden]: one product for the three
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

  at::Tensor read(const std::string& name, std::vector<int64_t> shape) {
    at::Tensor tensor = at::zeros(shape, at::kFloat);
    const auto found = file_.tensor(name);
    if (!found.ok()) {
      fail(found.status());
      return tensor;
    }
    const SafetensorsTensor& source = **found;
    const std::vector<int64_t> source_shape(source.shape.begin(), source.shape.end());
    if (source_shape != shape || source.type != SafetensorsType::kF32) {
      fail(absl::InvalidArgumentError(str_cat(file_.path(), ": tensor ", name, " is not float32 ",
                                              shape_text(shape), " but ",
                                              shape_text(source_shape))));
      return tensor;
    }
    std::memcpy(tensor.data_ptr<float>(), source.data.data(), source.data.size());
    return tensor;
  }

  Linear linear(const std::vector<std::string>& names, int64_t in, int64_t out) {
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> biases;
    for (const std::string& name : names) {
      weights.push_back(read(name + ".weight", {out, in}));
      biases.push_back(read(name + ".bias", {out}));
    }
    return {.weight = at::cat(weights).t().contiguous(), .bias = at::cat(biases)};
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

}  // namespace

struct BertEncoder::Weights {
  at::Tensor words;      // [vocabulary, hidden]
  at::Tensor positions;  // [positions, hidden], the embedding of token type 0 added
  Norm norm;
  std::vector<Layer> layers;
};

// Activations of one call. Grown to the largest call so far: fresh pages cost as much as a tenth
// of the products.
struct BertEncoder::Buffers {
  at::Tensor word_ids;         // [capacity]
  at::Tensor position_ids;     // [capacity]
  at::Tensor x;                // [capacity, hidden]
  at::Tensor y;                // [capacity, hidden]
  at::Tensor context;          // [capacity, hidden]
  at::Tensor query_key_value;  // [capacity, 3 * hidden]
  at::Tensor hidden;           // [capacity, feed_forward]
  at::Tensor mean;             // [capacity, 1]: the norms' by-products
  at::Tensor rstd;             // [capacity, 1]
  int64_t capacity = 0;

  void reserve(int64_t n_tokens, const BertConfig& config) {
    if (n_tokens <= capacity) return;
    capacity = n_tokens;
    const int64_t width = config.hidden_size;
    word_ids = at::empty({capacity}, at::kInt);
    position_ids = at::empty({capacity}, at::kInt);
    x = at::empty({capacity, width}, at::kFloat);
    y = at::empty({capacity, width}, at::kFloat);
    context = at::empty({capacity, width}, at::kFloat);
    query_key_value = at::empty({capacity, 3 * width}, at::kFloat);
    hidden = at::empty({capacity, config.feed_forward_size}, at::kFloat);
    mean = at::empty({capacity, 1}, at::kFloat);
    rstd = at::empty({capacity, 1}, at::kFloat);
  }
};

BertEncoder::BertEncoder(const BertConfig& config, const Digest& fingerprint,
                         std::unique_ptr<Weights> weights)
    : config_(config),
      fingerprint_(fingerprint),
      weights_(std::move(weights)),
      buffers_(std::make_unique<Buffers>()) {}

BertEncoder::~BertEncoder() = default;

absl::StatusOr<std::unique_ptr<BertEncoder>> BertEncoder::load(const std::string& folder) {
  const c10::InferenceMode inference;
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
  // Sentences are all of type 0.
  weights->positions += reader.read("embeddings.token_type_embeddings.weight", {2, width})[0];
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
  return std::unique_ptr<BertEncoder>(new BertEncoder(config, fingerprint, std::move(weights)));
}

void BertEncoder::encode(std::span<const std::span<const uint32_t>> sequences,
                         std::vector<float>& vectors) {
  const c10::InferenceMode inference;
  int64_t n_tokens = 0;
  for (const auto& sequence : sequences) {
    RAG_CHECK(!sequence.empty() && sequence.size() <= config_.max_tokens);
    n_tokens += static_cast<int64_t>(sequence.size());
  }
  if (n_tokens == 0) return;
  Buffers& buffers = *buffers_;
  buffers.reserve(n_tokens, config_);
  const auto rows = [n_tokens](const at::Tensor& buffer) { return buffer.narrow(0, 0, n_tokens); };
  const int64_t width = config_.hidden_size;
  const int64_t heads = config_.n_heads;
  const int64_t head_dim = config_.head_dim();

  at::Tensor word_ids = rows(buffers.word_ids);
  at::Tensor position_ids = rows(buffers.position_ids);
  int* word = word_ids.data_ptr<int>();
  int* position = position_ids.data_ptr<int>();
  for (const auto& sequence : sequences) {
    for (size_t i = 0; i < sequence.size(); ++i) {
      RAG_CHECK(sequence[i] < config_.vocabulary_size);
      *word++ = static_cast<int>(sequence[i]);
      *position++ = static_cast<int>(i);
    }
  }

  at::Tensor x = rows(buffers.x);
  at::Tensor y = rows(buffers.y);
  at::Tensor context = rows(buffers.context);
  at::Tensor qkv = rows(buffers.query_key_value);
  at::Tensor hidden = rows(buffers.hidden);
  at::Tensor mean = rows(buffers.mean);
  at::Tensor rstd = rows(buffers.rstd);
  const auto normalise = [&](const at::Tensor& in, const Norm& norm, at::Tensor& out) {
    at::native_layer_norm_out(out, mean, rstd, in, {width}, norm.weight, norm.bias,
                              config_.norm_epsilon);
  };

  at::index_select_out(y, weights_->words, 0, word_ids);
  y.add_(weights_->positions.index_select(0, position_ids));
  normalise(y, weights_->norm, x);
  for (const Layer& layer : weights_->layers) {
    layer.query_key_value.apply(x, qkv);
    int64_t begin = 0;
    for (const auto& sequence : sequences) {
      const auto length = static_cast<int64_t>(sequence.size());
      // [3, 1, heads, length, head_dim], in place
      const at::Tensor parts = qkv.narrow(0, begin, length)
                                   .view({1, length, 3, heads, head_dim})
                                   .permute({2, 0, 3, 1, 4});
      const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
      context.narrow(0, begin, length)
          .view({length, heads, head_dim})
          .copy_(attended[0].transpose(0, 1));
      begin += length;
    }
    layer.attention_output.apply(context, y);
    y.add_(x);
    normalise(y, layer.attention_norm, x);
    layer.up.apply(x, hidden);
    at::gelu_(hidden);
    layer.down.apply(hidden, y);
    y.add_(x);
    normalise(y, layer.output_norm, x);
  }

  int64_t begin = 0;
  for (const auto& sequence : sequences) {
    const auto length = static_cast<int64_t>(sequence.size());
    at::Tensor pooled = x.narrow(0, begin, length).mean(0);
    // As torch.nn.functional.normalize: the bound keeps a zero vector zero.
    pooled.div_(pooled.norm().clamp_min(1e-12));
    const float* values = pooled.data_ptr<float>();
    vectors.insert(vectors.end(), values, values + width);
    begin += length;
  }
}

}  // namespace ragcache::retrieval
