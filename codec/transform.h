// Transform coding: exact rows of one side of one part ↔ a stream (codec/TRANSFORM.md).
//
// A row's values lose the mean and, of keys, the rotation of RoPE, are taken into the components of
// a fitted basis, rounded to integers and coded by rANS with static tables. Each stream decodes
// alone; a row's integers depend on nothing but that row and its position, so cutting rows
// elsewhere gives the same rows. Every kernel set gives the same bytes and the same rows.
// Immutable after create (the encoder's matrices are made at the first encode): any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "codec/integers.h"
#include "codec/rope.h"
#include "codec/transform_kernels.h"
#include "proto/status.h"
#include "proto/transform.h"

namespace kv {

/// Tables in memory that the transforms of one set share.
class TransformTables {
 public:
  /// Returns: invalid_argument, as validate.
  static Result<std::shared_ptr<const TransformTables>> create(
      std::shared_ptr<const TransformSet> set);
  const TransformSet& set() const { return *set_; }
  const IntegerTables& integers() const { return integers_; }
  const RotaryTurns& turns(size_t rotation) const { return turns_[rotation]; }

 private:
  explicit TransformTables(std::shared_ptr<const TransformSet> set);
  std::shared_ptr<const TransformSet> set_;
  IntegerTables integers_;
  std::vector<RotaryTurns> turns_;
};

class TransformCoder {
 public:
  /// `kernels` null: those that the machine supports, or that KV_KERNELS names.
  /// Returns: invalid_argument, as validate_shape.
  static Result<std::shared_ptr<const TransformCoder>> create(
      std::shared_ptr<const TransformTables> tables, size_t transform, uint32_t heads, uint32_t dim,
      const Kernels* kernels = nullptr);
  const Transform& transform() const { return transform_; }
  size_t values() const { return transform_.mean.size(); }  ///< of a row

  /// rows (count, heads, dim) at positions first …; 1 to kMaxStreamRows of them. Nothing if a value
  /// is not finite or does not fit: such rows are to be kept exact.
  std::optional<std::vector<uint8_t>> encode(std::span<const float> rows, uint32_t first) const;
  /// The integers of encode before they are coded, (values, lane_rows(count)).
  std::optional<std::vector<int16_t>> integers(std::span<const float> rows, uint32_t first) const;

  /// That a stream of `count` rows can be decoded: a fifth of the work of decode. Returns:
  /// corruption.
  Status check(std::span<const uint8_t> stream, uint32_t count) const;
  /// Rows [begin, end) of a stream of `count` rows at positions first …, into (end - begin, heads,
  /// dim). Returns: corruption; invalid_argument for a range that the stream has not.
  Status decode(std::span<const uint8_t> stream, uint32_t count, uint32_t first, uint32_t begin,
                uint32_t end, std::span<float> out) const;

 private:
  class Sums;
  TransformCoder(std::shared_ptr<const TransformTables> tables, size_t transform, uint32_t heads,
                 uint32_t dim, const Kernels& kernels);
  size_t groups() const { return values() / transform_.width; }
  ComponentCoding coding() const { return {transform_.table, transform_.low_bits}; }
  const std::vector<float>& inverses() const;
  bool integers_of(const float* rows, size_t count, size_t lanes, int16_t* out) const;

  std::shared_ptr<const TransformTables> tables_;
  const Transform& transform_;
  const uint32_t heads_, dim_;
  const TransformKernels& kernels_;
  size_t stride_;              // columns of the matrices: padded(width)
  std::vector<float> matrix_;  // (groups) of (width components, stride), in panels
  std::vector<float> mean_;    // (groups, stride)
  mutable std::once_flag inverted_;
  mutable std::vector<float> inverse_;  // (groups) of (width values, stride), in panels; or empty
};

}  // namespace kv
