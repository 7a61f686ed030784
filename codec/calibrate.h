// KeyStatistics: mean and spread of every key channel of a model, for a calibrated profile.
//
// One thread at a time. Sums run in double in the order of the calls, so the same rows in the same
// order give the same profile, bit for bit. Method and measurements: codec/TURBOQUANT.md, "Mean and
// gain".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/model.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

class KeyStatistics {
 public:
  explicit KeyStatistics(const ModelSpec& model);

  /// Adds K rows of one part: `rows` is (n, heads, k_dim), the first at absolute position
  /// `first_row`. Positions below kSkippedTokens are skipped: they are outliers and stay exact.
  /// Returns: invalid_argument for an unknown part, a size that is no whole number of rows, or a
  /// value that is not finite (nothing is added then).
  Status add_keys(uint32_t layer, uint32_t part, uint32_t first_row, std::span<const float> rows);
  /// Adds query rows, optional: `rows` is (n, heads * group, k_dim), the `group` query heads of one
  /// kv head adjacent. Returns: as add_keys.
  Status add_queries(uint32_t layer, uint32_t part, uint32_t first_row, uint32_t group,
                     std::span<const float> rows);

  /// `base` with key_mean and key_gain filled in for every part whose keys are coded and seen at
  /// least kMinRows times; others stay as they are.
  /// Returns: invalid_argument if `base` doesn't fit the model.
  Result<Profile> calibrated(const Profile& base) const;

  static constexpr uint32_t kSkippedTokens = 4;
  static constexpr uint64_t kMinRows = 16;

 private:
  struct Part {
    uint32_t heads = 0, dim = 0;
    uint64_t key_rows = 0;
    std::vector<double> key_sum, key_square_sum, query_square_sum;  // (heads, dim)
  };
  /// The part that `rows`, `width` times its heads x dim each, belong to; all values finite.
  Result<Part*> find(uint32_t layer, uint32_t part, uint32_t width, std::span<const float> rows);
  static void fill(const Part& part, PartCoding& coding);

  ModelSpec model_;
  std::vector<std::vector<Part>> parts_;
};

}  // namespace kv
