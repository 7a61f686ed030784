// The tiny DeepSeek-V4: windows beside compressed rows, in which keys and values are one storage.
//
// Layers: compressed-sparse, window only, heavily compressed, compressed-sparse. Part 0 of each is
// window{20}; heavily compressed ones add pooled{128}, compressed-sparse ones pooled{4, overlap}
// twice: the rows and the indexer's, which choose the 8 rows that a token sees.
#pragma once

#include <optional>

#include "tests/tiny/compressor.h"
#include "tests/tiny/experts.h"
#include "tests/tiny/streams.h"

namespace kv::tiny {

class DeepseekV4 final : public TinyModel {
 public:
  explicit DeepseekV4(uint64_t seed);

 private:
  Status compute(Token token, KvCache& cache, std::span<float> logits) const override;
  enum class Kind : uint8_t { window, heavy, sparse };
  struct Indexer {
    Compressor rows;
    Linear q_b, weights;
  };
  struct Layer {
    Kind kind = Kind::window;
    std::vector<float> attention_norm, feed_norm, q_norm, kv_norm, sinks;
    Linear q_a, q_b, kv, o_a, o_b;
    std::optional<Compressor> compressor;
    std::optional<Indexer> indexer;
    StreamMixer attention_streams, feed_streams;
    Linear router;
    std::vector<float> router_bias;    // of all but the first layer
    std::vector<uint32_t> experts_of;  // (vocabulary, 2): of the first layer
    Experts experts;
    GatedNetwork shared;
  };
  Layer make_layer(const Formula& formula, uint32_t layer, Kind kind);
  Status attention(uint32_t layer, const std::vector<float>& x, KvCache& cache, float* out) const;
  /// Indices of the compressed rows that the token sees, ascending.
  Result<std::vector<uint32_t>> choose(uint32_t layer, const std::vector<float>& x,
                                       const std::vector<float>& low, KvCache& cache) const;
  static Route route(const Layer& layer, Token token, const std::vector<float>& x);
  const Rope& rope(Kind kind) const { return kind == Kind::window ? rope_ : compressed_rope_; }

  Ends ends_;
  StreamHead stream_head_;
  std::vector<Layer> layers_;
  Rope rope_, compressed_rope_;
};

}  // namespace kv::tiny
