// The tiny Llama shapes: attention sinks (windows that keep their first rows) and chunks.
#pragma once

#include "tests/tiny/experts.h"
#include "tests/tiny/tiny_model.h"

namespace kv::tiny {

class Llama final : public TinyModel {
 public:
  /// One part per layer: kind with window and keep, or chunk.
  Llama(const std::string& name, uint64_t seed, const std::vector<PartSpec>& parts);

 private:
  Status compute(Token token, KvCache& cache, std::span<float> logits) const override;
  struct Layer {
    std::vector<float> attention_norm, feed_norm;
    Linear q, k, v, o;
    GatedNetwork feed;
  };
  Status attention(uint32_t layer, const std::vector<float>& x, KvCache& cache, float* out) const;

  Ends ends_;
  std::vector<Layer> layers_;
  Rope rope_;
};

}  // namespace kv::tiny
