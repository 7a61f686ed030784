// Screen: finds the row of a large weight matrix whose product with x is the highest, and reads
// about half of the matrix for it.
//
// A step of a small model reads its vocabulary's matrix longer than all of its layers. Who wants
// only the best token needs few of the products: a copy of four bits a weight gives each product up
// to a bound, and what may exceed the best one's true product is computed from the weights
// themselves. The answer is that of computing them all, for every x: with the copy w' and its
// activations x' (8 bits), |w x - w' x'| <= |w - w'| |x| + |w'| |x - x'| (Cauchy-Schwarz), plus
// what fp32 sums lose. Norms are of s_j w_j and x_j / s_j with s_j = sqrt(a typical |x_j|): models
// have columns whose activations are ten times the others', where plain norms would leave several
// times the rows. One thread at a time; the matrix and the threads outlive it.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/large_pages.h"
#include "engine/screen_block.h"
#include "engine/threads.h"
#include "engine/weights.h"

namespace kv {

class Screen {
 public:
  /// Whether a screen pays: the matrix is far larger than a processor's caches, from which it would
  /// be read fast anyway, and of more bits a weight than the copy.
  static bool pays(const Matrix& w);
  /// Copies `w` at 4.5 bits a weight; takes some ns a weight. columns <= kMostColumns. `typical`:
  /// (columns) what |x_j| is about; any values are right, good ones leave fewer rows.
  Screen(const Matrix& w, std::span<const float> typical, Threads& threads);
  static constexpr uint32_t kMostColumns = 16384;  ///< where the bound's share for sums is proven

  /// The row with the highest multiply() of x (columns), of equal ones the first. Empty where the
  /// screen can't tell or doesn't pay for a while: all have to be computed.
  std::optional<uint32_t> best(const float* x);

 private:
  struct Best {
    float value = -std::numeric_limits<float>::infinity();
    uint32_t row = 0;
    uint32_t looked_at = 0;
    void offer(float v, uint32_t r) {
      if (v > value || (v == value && r < row)) value = v, row = r;
    }
  };
  template <typename Body>
  Best each_strip(const Body& body);
  std::vector<uint32_t> left(uint32_t first_block, uint32_t end, float least) const;
  void copy_block(uint32_t block);
  bool take_input(const float* x);
  void estimate(uint32_t block, Best& best);
  Best look_at(std::span<const uint32_t> rows, const float* x) const;

  Matrix w_;
  Threads& threads_;
  LargePages blocks_;
  std::vector<float> weight_;       // s_j
  std::vector<float> lost_, held_;  // |w - w'| and |w'| of each row, of whole blocks
  Floats upper_;                    // of each row's product
  ScreenInput input_;
  float per_lost_ = 0, per_held_ = 0;  // a row's bound is lost * per_lost_ + held * per_held_
  uint32_t rest_ = 0;                  // calls that are not worth a try
};

}  // namespace kv
