// StreamBytes: what rows take that transforms code, beside what their profile promises, and what
// that says of the transforms. Pure; any thread.
//
// A profile promises the entropy of its tables (SharedTransforms::row_bytes), which are those of
// the rows that it was tuned to. Rows of another kind take more, as their integers are rare ones.
// Rows that vary less take less, and the same step costs more of what they say.
#pragma once

#include <cstdint>
#include <string>

#include "proto/model.h"
#include "proto/plane.h"
#include "proto/profile.h"

namespace kv {

struct StreamBytes {
  uint64_t taken = 0;     ///< by streams, and by rows that stayed exact as they fit none
  uint64_t promised = 0;  ///< for the same rows
  uint64_t f16 = 0;       ///< the same rows in fp16
  StreamBytes& operator+=(const StreamBytes& more);
  bool operator==(const StreamBytes&) const = default;
};

/// Bytes of a plane in the stored form of a complete block, but for the first tokens, which every
/// coding leaves exact; zeros where the profile, which fits its own model, names no transform.
StreamBytes stream_bytes(const Plane& plane, const Profile& profile);
/// fp16's bytes of one token of all sides that the profile has a transform for. It fits the model.
uint64_t streamed_token_bytes(const ModelSpec& model, const Profile& profile);

enum class Fit : uint8_t {
  unknown,  ///< too few rows to judge
  good,
  costly,  ///< the rows take more than promised
  coarse,  ///< they take less: the steps are too coarse for them
};
/// `token_bytes`: of streamed_token_bytes.
Fit fit_of(const StreamBytes& bytes, uint64_t token_bytes);
/// Words for people, behind "model X: "; empty for good and unknown.
std::string fit_words(Fit fit, const StreamBytes& bytes);

}  // namespace kv
