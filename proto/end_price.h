// EndPrice: bytes of an entry, and of what it takes that further of its lengths are restorable.
//
// Of a window or a chunk the rows before such a length are kept too, of a pooled part the carry
// there. States are not in it, as nobody but the engine knows their size: it sees to them itself
// (engine/kv_cache.h). Pure values, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/model.h"
#include "proto/profile.h"

namespace kv {

/// Bytes of `rows` rows of one side of a part that is coded so: of a transform expected, with room
/// for an eighth more, and no more than exact rows of `raw`. 0 where the side is kept raw.
uint64_t coded_rows_bytes(const Profile& profile, const PartCoding& coding, const SideSpec& side,
                          DType raw, uint64_t rows);
/// Bytes that rows [first, end) of one side take when they are stored in coded form; those before
/// exact_tokens are exact.
uint64_t stored_rows_bytes(const Profile& profile, const PartCoding& coding, const SideSpec& side,
                           DType raw, uint32_t exact_tokens, uint32_t first, uint32_t end);
/// The part's raw dtype under the profile.
DType raw_dtype(const PartSpec& part, const Profile& profile);

class EndPrice {
 public:
  EndPrice(const ModelSpec& model, const Profile& profile);

  /// Of an entry of n tokens, its rows all coded.
  uint64_t entry(uint32_t n) const;
  /// At most so much more for every `interval`-th block end before n; of 0 nothing.
  uint64_t ends(uint32_t n, uint32_t interval) const;
  /// The least power of two whose ends take no more than the entry itself: the ends of a longer
  /// entry are then among those of a shorter one. 0: none before n, or the model has nothing to
  /// keep for them.
  uint32_t interval(uint32_t n) const;

 private:
  struct Part {
    const PartSpec* spec;
    uint64_t row_bytes;
  };
  uint32_t block_;
  std::vector<Part> parts_;  // with rows
};

}  // namespace kv
