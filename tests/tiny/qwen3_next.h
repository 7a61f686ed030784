// The tiny Qwen3-Next: gated delta rule layers (a recurrent state) and one of full attention.
//
// The state of a recurrent layer at n: the last three inputs of its convolution (3, 128), then the
// matrix of each value head (4, 16, 16).
#pragma once

#include <optional>

#include "tests/tiny/experts.h"
#include "tests/tiny/tiny_model.h"

namespace kv::tiny {

inline constexpr size_t kRecurrentFloats = 3 * 128 + 4 * 16 * 16;

class Qwen3Next final : public TinyModel {
 public:
  explicit Qwen3Next(uint64_t seed);

 private:
  Status compute(Token token, KvCache& cache, std::span<float> logits) const override;
  struct Attention {
    Linear q, k, v, o;  // q: per head the query, then its gate
    std::vector<float> q_norm, k_norm;
  };
  struct DeltaNet {
    Linear in_qkvz, in_ba, out;
    std::vector<float> convolution, dt_bias, a_log, norm;
  };
  struct Layer {
    std::vector<float> attention_norm, feed_norm;
    std::optional<Attention> attention;
    std::optional<DeltaNet> delta;
    GatedNetwork feed;  // dense, or the shared expert
    bool routed = false;
    Linear router;
    std::vector<float> shared_gate;
    Experts experts;
  };
  Layer make_layer(const Formula& formula, uint32_t layer);
  Status attend(uint32_t layer, const std::vector<float>& x, KvCache& cache, float* out) const;
  Status recur(uint32_t layer, const std::vector<float>& x, KvCache& cache, float* out) const;
  static void feed_forward(const Layer& layer, const std::vector<float>& x, float* out);

  Ends ends_;
  std::vector<Layer> layers_;
  Rope rope_;
};

}  // namespace kv::tiny
