// Feed-forward parts of the tiny models: gated networks, and routed experts with a shared one.
//
// Immutable after construction: any thread; `Work` vectors belong to the call.
#pragma once

#include <limits>

#include "tests/tiny/math.h"

namespace kv::tiny {

inline constexpr float kNoLimit = std::numeric_limits<float>::infinity();

/// down(silu(gate x) * up x), with gate <= limit and |up| <= limit.
struct GatedNetwork {
  Linear gate, up, down;
  float limit = kNoLimit;

  GatedNetwork() = default;
  GatedNetwork(const Formula& formula, const std::string& name, uint32_t width, uint32_t inner,
               float limit = kNoLimit);
  /// out (width) += weight * the network of x (width).
  void add(const float* x, float weight, float* out) const;
};

/// Where a token goes: experts and their weights.
struct Route {
  std::vector<uint32_t> experts;
  std::vector<float> weights;
  /// Weights divided by their sum, times `factor`.
  void normalise(float factor);
};

/// Experts as transformers packs them: gate_up_proj (experts, 2 * inner, width), down_proj
/// (experts, width, inner).
class Experts {
 public:
  Experts() = default;
  Experts(const Formula& formula, const std::string& name, uint32_t count, uint32_t width,
          uint32_t inner, float limit = kNoLimit);
  /// out (width) += the routed experts' sum for x (width).
  void add(const float* x, const Route& route, float* out) const;

 private:
  std::vector<GatedNetwork> experts_;
};

}  // namespace kv::tiny
