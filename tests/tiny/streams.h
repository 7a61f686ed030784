// Residual streams of DeepSeek-V4 (manifold-constrained hyper-connections): kStreams copies of the
// hidden row, collapsed into one before a block and mixed with its result after it.
#pragma once

#include "tests/tiny/tiny_model.h"

namespace kv::tiny {

inline constexpr uint32_t kStreams = 2;
using Streams = std::vector<float>;  ///< (kStreams, kWidth)

/// What a block's weights make of a token's streams.
struct Mixing {
  std::vector<float> post, mix;  ///< (kStreams), (kStreams, kStreams) doubly stochastic
  std::vector<float> collapsed;  ///< (kWidth): the block's input
};

class StreamMixer {
 public:
  StreamMixer(const Formula& formula, const std::string& name);
  Mixing open(const Streams& streams) const;
  /// In place: streams mixed, plus each one's share of `result` (kWidth).
  static void close(const Mixing& mixing, const float* result, Streams& streams);

 private:
  Linear weights_;                   // ((2 + kStreams) * kStreams, kStreams * kWidth)
  std::vector<float> base_, scale_;  // (rows of weights_), (3)
};

/// The last collapse: x (kWidth).
class StreamHead {
 public:
  explicit StreamHead(const Formula& formula);
  std::vector<float> collapse(const Streams& streams) const;

 private:
  Linear weights_;
  std::vector<float> base_, scale_;
};

}  // namespace kv::tiny
