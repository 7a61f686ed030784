// Sines, cosines and turns. See rope.h.
#include "codec/rope.h"

#include <cmath>

namespace kv {
namespace {

constexpr uint32_t kNear = 256;  // positions whose turns are kept

struct Turn {
  double cosine, sine;
};

// The turn by an angle of at most 2^25 radians, by Taylor's series within pi / 4.
Turn turn_of(double angle) {
  const double quarters = std::nearbyint(angle * 0x1.45f306dc9c883p-1);
  double r = std::fma(-quarters, 0x1.921fb54442d18p+0, angle);
  r = std::fma(-quarters, 0x1.1a62633145c07p-54, r);
  const double x = r * r;
  double sine = -1.0 / 1307674368000.0;
  for (double c : {1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0,
                   1.0 / 120.0, -1.0 / 6.0, 1.0}) {
    sine = std::fma(sine, x, c);
  }
  sine *= r;
  double cosine = 1.0 / 20922789888000.0;
  for (double c : {-1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0,
                   -1.0 / 720.0, 1.0 / 24.0, -1.0 / 2.0, 1.0}) {
    cosine = std::fma(cosine, x, c);
  }
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace

RotaryTurns::RotaryTurns(const Rotation& rotation)
    : halves_(rotation.halves), step_(rotation.step) {
  cosines_.resize(kNear * step_.size());
  sines_.resize(cosines_.size());
  for (uint32_t p = 0; p < kNear; ++p) {
    angles(p, &cosines_[p * step_.size()], &sines_[p * step_.size()]);
  }
}

void RotaryTurns::angles(uint32_t position, float* cosines, float* sines) const {
  for (size_t i = 0; i < step_.size(); ++i) {
    const Turn t = turn_of(double{step_[i]} * position);
    cosines[i] = static_cast<float>(t.cosine);
    sines[i] = static_cast<float>(t.sine);
  }
}

void RotaryTurns::turn_row(float* row, uint32_t heads, uint32_t dim, const float* cosines,
                           const float* sines) const {
  const size_t pairs = step_.size();
  for (uint32_t h = 0; h < heads; ++h, row += dim) {
    if (halves_) {
      float* __restrict a = row;
      float* __restrict b = row + pairs;
      for (size_t i = 0; i < pairs; ++i) {
        const float x = a[i], y = b[i];
        a[i] = x * cosines[i] - y * sines[i];
        b[i] = x * sines[i] + y * cosines[i];
      }
    } else {
      for (size_t i = 0; i < pairs; ++i) {
        const float x = row[2 * i], y = row[2 * i + 1];
        row[2 * i] = x * cosines[i] - y * sines[i];
        row[2 * i + 1] = x * sines[i] + y * cosines[i];
      }
    }
  }
}

void RotaryTurns::turn(float* rows, size_t count, size_t stride, uint32_t first, uint32_t heads,
                       uint32_t dim, bool back) const {
  const size_t pairs = step_.size();
  std::vector<float> far(2 * pairs), both(2 * pairs);
  for (size_t r = 0; r < count; ++r) {
    const auto position = static_cast<uint32_t>(first + r), near = position % kNear;
    if (r == 0 || near == 0) angles(position - near, far.data(), far.data() + pairs);
    const float *fc = far.data(), *fs = fc + pairs;
    const float *nc = &cosines_[near * pairs], *ns = &sines_[near * pairs];
    float *cosines = both.data(), *sines = cosines + pairs;
    for (size_t i = 0; i < pairs; ++i) {
      const float sine = fs[i] * nc[i] + fc[i] * ns[i];
      cosines[i] = fc[i] * nc[i] - fs[i] * ns[i];
      sines[i] = back ? -sine : sine;
    }
    turn_row(rows + r * stride, heads, dim, cosines, sines);
  }
}

}  // namespace kv
