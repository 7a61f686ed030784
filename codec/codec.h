// Codec: exact rows ↔ stored rows of one model under one profile (codec/TURBOQUANT.md,
// codec/TRANSFORM.md).
//
// A Codec is immutable after create and shared as shared_ptr<const Codec>: any thread, any number
// of them. It works per token and head: coding one row or many, slicing before or after, gives the
// same bytes, with every kernel set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/kernels.h"
#include "proto/model.h"
#include "proto/plane.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

class TransformCoder;
class TransformTables;

/// True for the vector lengths that can be coded: see kCodableDims.
bool codable_dim(uint32_t dim);
inline constexpr const char* kCodableDims =
    "multiples of 4 from 32 to 512 without a prime factor above 7";

/// The coding of one side of one part; the vectors are empty where the side has none.
struct SideCoding {
  uint8_t bits = 0;                                 ///< of codes; 0: kept raw, or `coder`
  uint32_t heads = 0;                               ///< 0: the part has no such side
  uint32_t dim = 0;                                 ///< values per row and head
  DType raw_dtype = DType::f16;                     ///< of exact rows in the stored form
  std::vector<float> mean;                          ///< (heads, dim), K only
  std::vector<float> gain;                          ///< (heads, dim), K only
  std::vector<float> inverse_gain;                  ///< (heads, dim), K only: 1 / gain
  std::shared_ptr<const std::vector<float>> signs;  ///< (dim) of +1 and -1; null if bits == 0
  std::shared_ptr<const TransformCoder> coder;      ///< null: no transform

  bool coded() const { return bits != 0 || coder != nullptr; }
};

class Codec {
 public:
  /// `kernels` null: those that the machine supports, or that KV_KERNELS names.
  /// Returns: unsupported for a head_dim that can't be coded (naming layer, part, side) or an
  /// unknown or unsupported KV_KERNELS; invalid_argument if the profile doesn't fit the model.
  static Result<std::shared_ptr<const Codec>> create(const ModelSpec& model,
                                                     std::shared_ptr<const Profile> profile,
                                                     const Kernels* kernels = nullptr);

  const ModelSpec& model() const { return model_; }
  const Profile& profile() const { return *profile_; }
  const Kernels& kernels() const { return *kernels_; }
  /// Null if the model has no such layer, part or side.
  const SideCoding* side(uint32_t layer, uint32_t part, Side side) const;

  /// The stored form of `rows`: rows before profile().exact_tokens stay exact (rounded to the raw
  /// dtype), the others become codes or, where the side has a transform, a stream for each block.
  /// Exact runs are in the side's raw dtype or f32; runs that are codes or streams already are
  /// copied as they are. Where neither is in force the plane stays raw.
  /// If the scale of a vector does not fit fp16, a value does not fit its transform, or a stream
  /// would be no shorter than exact rows, all rows that came exact stay exact: the caller
  /// sees an exact run beyond exact_tokens and counts it. Returns: invalid_argument naming layer,
  /// part, side for a wrong shape, dtype or size, for a value that is not finite (naming row and
  /// head), or for one that the raw dtype cannot hold.
  Result<Plane> encode(const Plane& rows) const { return encode(rows, {}); }
  /// The same, written to `place` if it takes exactly that many bytes: the result's bytes are then
  /// a view of `place` without an owner. What else it takes lies in memory of its own. `place` may
  /// be where the rows are, if they stay raw and of their dtype.
  Result<Plane> encode(const Plane& rows, std::span<uint8_t> place) const;
  /// Bytes of encode(rows) where every scale fits. Returns: invalid_argument as encode, for a wrong
  /// shape, dtype or size; unsupported for a side with a transform, whose streams tell theirs.
  Result<uint64_t> encoded_bytes(const Plane& rows) const;

  /// All rows exact in the side's raw dtype, nothing coded: for tails. Takes and refuses what
  /// encode does, and refuses code runs.
  Result<Plane> raw(const Plane& rows) const;
  /// As raw(), whatever the values are: one that the raw dtype cannot hold becomes infinite.
  Result<Plane> raw_of_any(const Plane& rows) const;

  /// Rows [first_row, end_row) (absolute) as (rows, heads, dim) of `out`, token-major, into `dst`,
  /// which has exactly that size. f16 results are clamped to its finite range.
  /// Returns: invalid_argument for a wrong shape or range, corruption for a scale that is not
  /// finite, or a stream that can't be decoded.
  Status decode_rows(const Plane& plane, uint32_t first_row, uint32_t end_row, DType out,
                     std::span<uint8_t> dst) const;
  /// The whole plane as one exact run of dtype `out`. Returns: as decode_rows.
  Result<Plane> decoded(const Plane& plane, DType out) const;

  /// Shape, dtype, bits and size against model and profile, without reading the bytes.
  /// Returns: invalid_argument naming layer, part, side, expected and given.
  Status check_shape(const Plane& plane) const;
  /// check_shape, and that every exact value and every scale is finite: for planes from a stranger.
  /// Streams tell when they are decoded.
  Status check(const Plane& plane) const;
  /// check_shape, and that the plane's streams can be decoded. Returns: as decode_rows.
  Status check_streams(const Plane& plane) const;

 private:
  Codec(ModelSpec model, std::shared_ptr<const Profile> profile, const Kernels* kernels)
      : model_(std::move(model)), profile_(std::move(profile)), kernels_(kernels) {}
  Status add_side(uint32_t layer, uint32_t part, const SideSpec& spec,
                  const std::shared_ptr<const TransformTables>& tables);
  Result<Plane> encode_streams(const Plane& rows, const SideCoding& side, bool keep_exact) const;

  ModelSpec model_;
  std::shared_ptr<const Profile> profile_;
  const Kernels* kernels_;
  std::vector<std::vector<std::vector<SideCoding>>> sides_;  // [layer][part][Side]
};

}  // namespace kv
