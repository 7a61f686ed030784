// Model: a Llama-family model as loaded from its GGUF: shape, packed weights, tokenizer, identity.
//
// Immutable after load and shared as shared_ptr<const Model>: any thread. Weights stay packed in
// the mapped file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/weights.h"
#include "proto/model.h"
#include "proto/status.h"

namespace kv {

/// Sizes of a Llama-family model; every count is at least 1.
struct ModelShape {
  uint32_t layers = 0;
  uint32_t width = 0;     ///< values per token between layers
  uint32_t ffn = 0;       ///< inner width of the feed-forward part
  uint32_t heads = 0;     ///< query heads
  uint32_t kv_heads = 0;  ///< divides heads
  uint32_t head_dim = 0;  ///< a codable one (codec/codec.h)
  uint32_t vocab = 0;
  uint32_t context = 0;  ///< most positions of one sequence
  float rope_base = 0;
  float rms_eps = 0;
};

struct LayerWeights {
  std::span<const float> attn_norm, ffn_norm;  // (width)
  Matrix q, k, v, o;      // (heads*head_dim | kv_heads*head_dim, width), o: (width, heads*head_dim)
  Matrix gate, up, down;  // (ffn, width), (ffn, width), (width, ffn)
};

class Model {
 public:
  /// Returns: io_error, corruption (file, names the tensor), unsupported (architecture, tensor
  /// type, tokenizer, rope scaling; by name).
  static Result<std::shared_ptr<const Model>> load(const std::string& path);
  static Result<std::shared_ptr<const Model>> load(GgufFile file);

  const ModelShape& shape() const { return shape_; }
  /// One `full` part per layer. The fingerprint is SHA-256 over shape, rope and all tensors.
  const ModelSpec& spec() const { return spec_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  const std::vector<LayerWeights>& layers() const { return layers_; }
  const Matrix& embedding() const { return embedding_; }  ///< (vocab, width)
  const Matrix& output() const { return output_; }        ///< (vocab, width); often the embedding
  std::span<const float> output_norm() const { return output_norm_; }
  /// cos and sin of every position's rotation: (context, head_dim/2) pairs {cos, sin}.
  std::span<const float> rope(uint32_t position) const;

 private:
  explicit Model(GgufFile file) : file_(std::move(file)) {}
  Status read_shape();
  Status read_weights();
  void make_rope();
  void make_spec();

  GgufFile file_;
  ModelShape shape_;
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<LayerWeights> layers_;
  Matrix embedding_, output_;
  std::span<const float> output_norm_;
  std::vector<float> rope_;
};

}  // namespace kv
