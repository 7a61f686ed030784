// Model: a Llama- or Gemma-3-family model as loaded from its GGUF: shape, packed weights,
// tokenizer, identity.
//
// Immutable after load and shared as shared_ptr<const Model>: any thread. Weights stay packed, as
// panels (panels.h); while they are made the file is in memory too. How a layer computes:
// layer_ops.h.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/weights.h"
#include "proto/model.h"
#include "proto/status.h"

namespace kv {

enum class Architecture : uint8_t { llama, gemma3 };
const char* to_string(Architecture architecture);  ///< GGUF's name

/// Sizes and settings of a model; every count is at least 1.
struct ModelShape {
  Architecture architecture = Architecture::llama;
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

  // Gemma-3 only.
  uint32_t window = 0;        ///< newest positions that a windowed layer's query sees; 0: none is
  uint32_t full_every = 1;    ///< layers full_every - 1, 2 * full_every - 1, … see all positions
  float local_rope_base = 0;  ///< of windowed layers

  bool windowed(uint32_t layer) const { return window != 0 && (layer + 1) % full_every != 0; }
};

/// The file's words, all keys checked. `vocab` is the tokenizer's size.
/// Returns: corruption, unsupported (architecture, or a key that the engine doesn't honour; by
/// name).
Result<ModelShape> read_shape(const GgufFile& file, uint32_t vocab);
/// True: the architecture is one of ours: asked before anything else of the file is read.
Result<Architecture> read_architecture(const GgufFile& file);

struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm;  // (width)
  Matrix q, k, v, o;      // (heads*head_dim | kv_heads*head_dim, width), o: (width, heads*head_dim)
  Matrix gate, up, down;  // (ffn, width), (ffn, width), (width, ffn)
  // Empty where the architecture has none.
  std::vector<float> q_norm, k_norm;                      // (head_dim)
  std::vector<float> post_attention_norm, post_ffn_norm;  // (width)
};

class Model {
 public:
  /// Returns: io_error, corruption (file, names the tensor), unsupported (architecture, tensor
  /// type, tokenizer, rope scaling; by name).
  static Result<std::shared_ptr<const Model>> load(const std::string& path);
  static Result<std::shared_ptr<const Model>> load(GgufFile file);

  const ModelShape& shape() const { return shape_; }
  /// One part per layer: `window` where the layer is windowed, else `full`. The fingerprint is
  /// that of the file (engine/fingerprint.h).
  const ModelSpec& spec() const { return spec_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  const std::vector<LayerWeights>& layers() const { return layers_; }
  const Matrix& embedding() const { return embedding_; }  ///< (vocab, width)
  const Matrix& output() const { return output_; }        ///< (vocab, width); often the embedding
  std::span<const float> output_norm() const { return output_norm_; }
  /// The rotation of a position in a kind of layer: out (head_dim), pairs {cos, sin} of the angles
  /// position * base^(-2i / head_dim), i < head_dim / 2.
  void rope(bool windowed, uint32_t position, float* out) const;

 private:
  Model() = default;
  Status read_weights(const GgufFile& file);
  Status read_layer(const GgufFile& file, uint32_t index, std::vector<std::string>& used);
  void make_panels();
  void make_rope();
  void make_spec(const GgufFile& file);

  ModelShape shape_;
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<LayerWeights> layers_;
  LargePages panels_;  // of all matrices
  Matrix embedding_, output_;
  std::vector<float> output_norm_;
  std::array<std::vector<double>, 2>
      rope_steps_;  // angle per position of each pair: full, windowed
};

}  // namespace kv
