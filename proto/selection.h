// Selection: the part of a hit that a client needs: layers, parts, kv heads, and from which token
// on.
//
// An engine that loads layer by layer asks for one layer at a time, a rank of several for its heads
// of the full entry, and any engine only for rows that it lacks. Pure functions, any thread.
#pragma once

#include <span>

#include "proto/plane.h"

namespace kv {

/// Ranges are [first, end); end kToEnd: all from first on.
struct Selection {
  static constexpr uint16_t kToEnd = UINT16_MAX;
  struct Range {
    uint16_t first = 0, end = kToEnd;
    bool has(uint32_t i) const { return i >= first && (end == kToEnd || i < end); }
    bool all() const { return first == 0 && end == kToEnd; }
    bool operator==(const Range&) const = default;
  };
  /// Objects all of whose rows are at lower positions stay away; of others every row comes.
  uint32_t from_token = 0;
  Range layers, parts;  ///< parts: by their index in their layer
  /// kv heads. Planes of one head come whole: every rank needs them.
  Range heads;

  bool has(uint16_t layer, uint16_t part) const { return layers.has(layer) && parts.has(part); }
  bool operator==(const Selection&) const = default;
};

/// Ranges in order and within the model. Returns: invalid_argument naming range and limit.
Status validate(const Selection& selection, const ModelSpec& model);

/// True if the object has no row at or above selection.from_token, and no state.
bool all_rows_below(const Object& object, const ModelSpec& model, const Selection& selection);
/// The object with the planes and states of the selection's layers and parts alone, their bytes
/// shared; null: nothing is left.
ObjectPtr select_parts(const ObjectPtr& object, const Selection& selection);

/// Heads of a plane of `heads` that the selection takes.
uint32_t selected_heads(const Selection& selection, uint32_t heads);
/// `plane` with the selection's heads alone and no bytes: its shape.
Plane shape_of_heads(const Plane& plane, const Selection& selection);
/// Copies the bytes of the selection's heads into `dst`, of plane_bytes(shape_of_heads(plane)).
/// `src`: the plane's bytes.
void copy_heads(const Plane& plane, std::span<const uint8_t> src, const Selection& selection,
                std::span<uint8_t> dst);

}  // namespace kv
