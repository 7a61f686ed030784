// Rows copied, cut and coded.
#include "cachesvc/core/encode_plane.h"

#include <algorithm>

#include "codec/finite.h"

namespace kv {
namespace {

// True if nothing is wrong with an exact plane but a value that isn't finite.
bool only_not_finite(const Plane& p, const Codec& codec) {
  bool exact = std::all_of(p.runs.begin(), p.runs.end(),
                           [](const RowRun& r) { return r.form == RunForm::exact; });
  return exact && codec.check_shape(p).ok() &&
         !finite_values(p.bytes.data(), p.bytes.size() / dtype_bytes(p.dtype), p.dtype);
}

// Result of coding a plane: `made`, but a failure by values that aren't finite alone is counted,
// and the plane kept as given if the service is set so.
Result<Plane> or_as_given(const EncodeInput& in, const Plane& plane, Result<Plane> made,
                          EncodeCounts& counts) {
  if (made.ok() || !only_not_finite(plane, *in.codec)) return made;
  counts.nonfinite.fetch_add(1);
  return in.keep_nonfinite ? in.codec->raw_of_any(plane) : std::move(made);
}

// The given rows in the form of the copied rows before them.
Result<Plane> beside_copies(const EncodeInput& in, const Plane& given, EncodeCounts& counts) {
  const SideCoding* side = in.codec->side(given.layer, given.part, given.side);
  if (has_coded_runs(given) || !side || given.dtype == side->raw_dtype) return given;
  return or_as_given(in, given, in.encode ? in.codec->encode(given) : in.codec->raw(given), counts);
}

// The copied rows and the given ones as one plane.
Result<Plane> with_copies(const EncodeInput& in, const PlaneSlot& slot, EncodeCounts& counts) {
  if (slot.given) KV_RETURN_IF_ERROR(check_size(*slot.given));
  if (in.copies.empty()) return *slot.given;
  const PartSpec& spec = in.codec->model().layers[slot.layer].parts[slot.part];
  uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
  std::vector<Plane> pieces;
  for (size_t i = 0; i < in.copies.size(); ++i) {
    uint32_t first = in.copies[i].first_row / rate, end = in.copies[i].end_row / rate;
    if (first == end) continue;
    const Plane* source = find_plane(*in.sources[i], slot.layer, slot.part, slot.side);
    if (!source) {
      return invalid_argument(slot.where() + "the source of rows [" + std::to_string(first) + ", " +
                              std::to_string(end) + ") has no such plane");
    }
    KV_ASSIGN_OR_RETURN(Plane piece, slice_rows(*source, first, end));
    pieces.push_back(std::move(piece));
  }
  if (slot.given && slot.given->rows() > 0) {
    KV_ASSIGN_OR_RETURN(Plane given, beside_copies(in, *slot.given, counts));
    pieces.push_back(std::move(given));
  }
  auto joined = join_rows(pieces);
  if (!joined.ok()) {
    return invalid_argument(slot.where() + joined.status().message());
  }
  return joined;
}

// True if the codec left rows exact that it should have coded.
bool fell_back(const Plane& p, const Codec& codec) {
  const SideCoding* side = codec.side(p.layer, p.part, p.side);
  if (!side || !side->coded()) return false;
  uint32_t row = p.first_row;
  for (const RowRun& run : p.runs) {
    row += run.rows;
    if (run.form == RunForm::exact && row > codec.profile().exact_tokens) return true;
  }
  return false;
}

// Complete blocks in the profile's codes, tails exact in the raw dtype.
Result<Plane> stored_form(const EncodeInput& in, const Plane& plane, std::span<uint8_t> place,
                          EncodeCounts& counts) {
  const bool coded = has_coded_runs(plane);
  if (!in.encode || coded) KV_RETURN_IF_ERROR(in.codec->check(plane));
  KV_RETURN_IF_ERROR(in.codec->check_streams(plane));
  if (!in.encode) {
    const SideCoding* side = in.codec->side(plane.layer, plane.part, plane.side);
    return coded || plane.dtype == side->raw_dtype ? plane : in.codec->raw(plane);
  }
  KV_ASSIGN_OR_RETURN(Plane encoded, in.codec->encode(plane, place));
  if (fell_back(encoded, *in.codec)) counts.raw_fallbacks.fetch_add(1);
  counts.add(stream_bytes(encoded, in.codec->profile()));
  return encoded;
}

}  // namespace

Status check_size(const Plane& p) {
  uint64_t rows = p.first_row;
  for (const RowRun& run : p.runs) rows += run.rows;
  bool sane = rows <= kMaxTokens && p.heads <= kMaxHeads && p.dim <= kMaxDim && p.bits <= 8 &&
              p.runs.size() <= kMaxRunsPerPlane;
  if (sane && plane_bytes(p) == p.bytes.size()) return {};
  return invalid_argument(PlaneSlot{p.layer, p.part, p.side}.where() + "bytes: expected " +
                          (sane ? std::to_string(plane_bytes(p)) : "those of a legal shape") +
                          ", given " + std::to_string(p.bytes.size()));
}

Result<Plane> finished_plane(const EncodeInput& in, const PlaneSlot& slot, EncodeCounts& counts) {
  KV_ASSIGN_OR_RETURN(Plane plane, with_copies(in, slot, counts));
  if (in.is_supplement()) {
    if (plane.first_row > in.keep.first || plane.end_row() < in.keep.end) {
      return invalid_argument(slot.where() + "expected rows [" + std::to_string(in.keep.first) +
                              ", " + std::to_string(in.keep.end) + "), given [" +
                              std::to_string(plane.first_row) + ", " +
                              std::to_string(plane.end_row()) + ")");
    }
    if (plane.first_row != in.keep.first || plane.end_row() != in.keep.end) {
      KV_ASSIGN_OR_RETURN(plane, slice_rows(plane, in.keep.first, in.keep.end));
    }
  }
  return or_as_given(in, plane, stored_form(in, plane, slot.place, counts), counts);
}

}  // namespace kv
