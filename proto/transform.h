// Transforms: what transform coding of rows needs beside the rows (codec/TRANSFORM.md): per side of
// a part a mean, a basis and a scale per component; tables of integers' frequencies that all share.
//
// Immutable values, any thread. A set is part of a profile, whose limit bounds it:
// kMaxProfileBytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/bytes.h"
#include "proto/status.h"

namespace kv {

inline constexpr uint32_t kMaxTransforms = 4096;
inline constexpr uint32_t kMaxIntegerTables = 256;
inline constexpr uint32_t kMaxRotations = 64;
inline constexpr uint32_t kMaxTransformWidth = 1024;  ///< values that are transformed together
inline constexpr uint32_t kMaxRowValues = 1u << 16;   ///< heads x dim of a transformed side
inline constexpr uint32_t kMaxStreamRows = 4096;
inline constexpr uint32_t kMaxLowBits = 7;
inline constexpr uint32_t kTableTotal = 4096;  ///< sum of a table's counts, the escape's included
inline constexpr int kMostTableValue = 127;    ///< a table has values -127 ... 127 at most
/// No rotation: rows are coded as they are.
inline constexpr uint16_t kNoRotation = 0xFFFF;

/// How often integers first, first + 1 … come, in parts of kTableTotal; the rest is the escape's.
struct IntegerTable {
  int8_t first = 0;
  std::vector<uint16_t> counts;  ///< each at least 1; together less than kTableTotal
  bool operator==(const IntegerTable&) const = default;
};

/// RoPE of a head: pair i turns by step[i] radians a position. The last values of a head may stay.
struct Rotation {
  bool halves = true;       ///< pairs are (i, i + pairs); else (2i, 2i + 1)
  std::vector<float> step;  ///< 1 to dim / 2 pairs, each within 0 … 8
  bool operator==(const Rotation&) const = default;
};

/// One side of one part. A row has heads x dim values and as many components.
struct Transform {
  uint16_t rotation = kNoRotation;  ///< index into TransformSet::rotations; undone before coding
  uint32_t width = 0;  ///< values transformed together: all of a row, or a whole number of heads
  std::vector<float> mean;
  std::vector<float> scale;       ///< of a component's basis vector, the step included; > 0
  std::vector<int8_t> basis;      ///< (values / width, width components, width values)
  std::vector<uint8_t> table;     ///< of each component: index into TransformSet::tables
  std::vector<uint8_t> low_bits;  ///< of each component: 0 … kMaxLowBits coded apart
  bool operator==(const Transform&) const = default;
};

struct TransformSet {
  std::vector<IntegerTable> tables;
  std::vector<Rotation> rotations;
  std::vector<Transform> transforms;
  bool operator==(const TransformSet&) const = default;
};

void encode(const TransformSet& set, ByteWriter& out);
/// Length of the encoded form; nothing is encoded for it.
uint64_t encoded_bytes(const TransformSet& set);
/// Any bytes are safe input. Returns: corruption.
Result<TransformSet> decode_transforms(ByteReader& in);
/// Tables, rotations, and every transform's own sizes and ranges. Returns: invalid_argument naming
/// the transform, the field, expected and given.
Status validate(const TransformSet& set);
/// That a transform is for rows of this shape. Returns: as validate.
Status validate_shape(const TransformSet& set, size_t transform, uint32_t heads, uint32_t dim);

/// A set as profiles share it: one copy, however many profiles, codecs and sessions have it.
struct SharedTransforms {
  TransformSet set;
  /// Bytes of a row that each transform is expected to take: the entropy of its tables. For plans;
  /// streams may take more.
  std::vector<double> row_bytes;
};
/// The set may be any that decode_transforms gives.
std::shared_ptr<const SharedTransforms> share(TransformSet set);

}  // namespace kv
