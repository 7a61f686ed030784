// The tiny DeepSeek-V3: multi-head latent attention and routed experts.
//
// A row of its one part per layer is the normalised latent (32) and the rotated key (16), shared by
// all heads. Attention runs on the latents themselves: a head's query is taken through its part of
// kv_b_proj once, and so is its weighted sum.
#pragma once

#include "tests/tiny/experts.h"
#include "tests/tiny/tiny_model.h"

namespace kv::tiny {

class DeepseekV3 final : public TinyModel {
 public:
  explicit DeepseekV3(uint64_t seed);

 private:
  Status compute(Token token, KvCache& cache, std::span<float> logits) const override;
  struct Layer {
    std::vector<float> attention_norm, feed_norm, q_norm, latent_norm;
    Linear q_a, q_b, kv_a, kv_b, o;
    GatedNetwork feed;  // dense, or the shared expert
    bool routed = false;
    Linear router;
    std::vector<float> router_bias;
    Experts experts;
  };
  Status attention(uint32_t layer, const std::vector<float>& x, KvCache& cache, float* out) const;
  void head(const Layer& layer, uint32_t head, const float* q, const ValueRows& rows,
            float* out) const;
  static Route route(const Layer& layer, const std::vector<float>& x);

  Ends ends_;
  std::vector<Layer> layers_;
  Rope rope_;
};

}  // namespace kv::tiny
