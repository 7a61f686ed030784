// RotaryTurns: undoes and redoes RoPE of rows, in arithmetic of its own that gives the same bits
// everywhere (codec/TRANSFORM.md, "Rotation"). Immutable: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/transform.h"

namespace kv {

class RotaryTurns {
 public:
  explicit RotaryTurns(const Rotation& rotation);

  /// In place: rows (count, stride), of which the first heads x dim values of each turn by
  /// its position, first … (`back`: by minus that). count is at most kMaxStreamRows.
  void turn(float* rows, size_t count, size_t stride, uint32_t first, uint32_t heads, uint32_t dim,
            bool back) const;

 private:
  void angles(uint32_t position, float* cosines, float* sines) const;  // (pairs) each
  void turn_row(float* row, uint32_t heads, uint32_t dim, const float* cosines,
                const float* sines) const;

  bool halves_;
  std::vector<float> step_;
  std::vector<float> cosines_, sines_;  // (256, pairs): positions 0 … 255
};

}  // namespace kv
