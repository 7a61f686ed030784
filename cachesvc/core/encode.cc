// Copies resolved, rows coded, bytes moved into the pool: all on workers.
#include "cachesvc/core/encode.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "codec/finite.h"

namespace kv {
namespace {

constexpr size_t kCopyStepBytes = 64 << 10;  // a copy's step: fits a core's cache

std::string where(uint16_t layer, uint16_t part, Side side) {
  return "layer " + std::to_string(layer) + " part " + std::to_string(part) + " side " +
         to_string(side) + ": ";
}

bool is_supplement(const Object& o) { return o.name.kind == ObjectKind::supplement; }

// The states that this object must hold: a carry's, or all checkpoint parts'.
std::vector<PartGroup::Member> expected_states(const EncodeWork& w) {
  const Object& o = w.object;
  if (is_supplement(o)) {
    const PartGroup& g = (*w.groups)[o.name.group];
    return o.name.first_row == o.name.end_row ? g.members : std::vector<PartGroup::Member>{};
  }
  std::vector<PartGroup::Member> out;
  if (o.name.kind != ObjectKind::snapshot) return out;
  for (const auto& g : *w.groups) {
    if (g.spec.has_rows() || g.spec.snapshot != SnapshotPlace::checkpoint) continue;
    out.insert(out.end(), g.members.begin(), g.members.end());
  }
  return out;
}

// A state part's bytes are values of its dtype; carries and opaque bytes are the engine's own.
Status check_state(EncodeWork& w, const StateBlob& s) {
  const PartSpec& spec = w.codec->model().layers[s.layer].parts[s.part];
  std::string at = "layer " + std::to_string(s.layer) + " part " + std::to_string(s.part) + " (" +
                   to_string(spec.kind) + "): state of ";
  if (s.bytes.size() > kMaxStateBytes) {
    return invalid_argument(at + std::to_string(s.bytes.size()) + " bytes over " +
                            std::to_string(kMaxStateBytes));
  }
  if (spec.kind != PartKind::state) return {};
  uint32_t unit = dtype_bytes(spec.dtype);
  if (s.bytes.empty() || s.bytes.size() % unit != 0) {
    return invalid_argument(at + "values of " + to_string(spec.dtype) +
                            ": expected a multiple of " + std::to_string(unit) +
                            " bytes, more than 0, given " + std::to_string(s.bytes.size()));
  }
  if (finite_values(s.bytes.data(), s.bytes.size() / unit, spec.dtype)) return {};
  w.nonfinite.fetch_add(1);
  if (w.keep_nonfinite) return {};
  return invalid_argument(at + "values of " + to_string(spec.dtype) + ": one is not finite");
}

// Carries of one group hold the same inputs of parts of the same shape.
Status check_carry_sizes(const EncodeWork& w) {
  const auto& given = w.object.states;
  for (const StateBlob& s : given) {
    const PartSpec& spec = w.codec->model().layers[s.layer].parts[s.part];
    if (spec.kind != PartKind::pooled || s.bytes.size() == given[0].bytes.size()) continue;
    return invalid_argument(
        "layer " + std::to_string(s.layer) + " part " + std::to_string(s.part) +
        " (pooled): expected a carry of " + std::to_string(given[0].bytes.size()) +
        " bytes, as of layer " + std::to_string(given[0].layer) + " part " +
        std::to_string(given[0].part) + ", given " + std::to_string(s.bytes.size()));
  }
  return {};
}

Status check_states(const EncodeWork& w) {
  auto expected = expected_states(w);
  const auto& given = w.object.states;
  for (const auto& m : expected) {
    auto same = [&](const StateBlob& s) { return s.layer == m.layer && s.part == m.part; };
    auto count = std::count_if(given.begin(), given.end(), same);
    if (count != 1) {
      return invalid_argument("layer " + std::to_string(m.layer) + " part " +
                              std::to_string(m.part) + ": expected 1 state, given " +
                              std::to_string(count));
    }
  }
  if (given.size() != expected.size()) {
    return invalid_argument(std::string(to_string(w.object.name.kind)) + ": expected " +
                            std::to_string(expected.size()) + " states, given " +
                            std::to_string(given.size()));
  }
  return check_carry_sizes(w);
}

// The members whose rows this object must hold.
std::vector<PartGroup::Member> expected_rows(const EncodeWork& w) {
  const Object& o = w.object;
  std::vector<PartGroup::Member> out;
  if (is_supplement(o)) {
    if (o.name.first_row < o.name.end_row) out = (*w.groups)[o.name.group].members;
  } else if (is_main(o.name.kind)) {
    for (const auto& g : *w.groups) {
      if (!g.spec.has_rows() || !g.spec.rows_in_block()) continue;
      uint32_t rate = g.spec.kind == PartKind::pooled ? g.spec.rate : 1;
      if (o.first_token / rate == o.end_token() / rate) continue;
      out.insert(out.end(), g.members.begin(), g.members.end());
    }
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::tie(a.layer, a.part) < std::tie(b.layer, b.part);
  });
  return out;
}

const Plane* find_plane(const Object& o, uint16_t layer, uint16_t part, Side side) {
  for (const Plane& p : o.planes) {
    if (p.layer == layer && p.part == part && p.side == side) return &p;
  }
  return nullptr;
}

// Checks runs and size before any arithmetic on the bytes: a client's may not agree.
Status check_size(const Plane& p) {
  uint64_t rows = p.first_row;
  for (const RowRun& run : p.runs) rows += run.rows;
  bool sane = rows <= kMaxTokens && p.heads <= kMaxHeads && p.dim <= kMaxDim && p.bits <= 8 &&
              p.runs.size() <= kMaxRunsPerPlane;
  if (sane && plane_bytes(p) == p.bytes.size()) return {};
  return invalid_argument(where(p.layer, p.part, p.side) + "bytes: expected " +
                          (sane ? std::to_string(plane_bytes(p)) : "those of a legal shape") +
                          ", given " + std::to_string(p.bytes.size()));
}

// True if nothing is wrong with an exact plane but a value that isn't finite.
bool only_not_finite(const Plane& p, const Codec& codec) {
  bool exact = std::all_of(p.runs.begin(), p.runs.end(),
                           [](const RowRun& r) { return r.form == RunForm::exact; });
  return exact && codec.check_shape(p).ok() &&
         !finite_values(p.bytes.data(), p.bytes.size() / dtype_bytes(p.dtype), p.dtype);
}

// Result of coding a plane: `made`, but a failure by values that aren't finite alone is counted,
// and the plane kept as given if the service is set so.
Result<Plane> or_as_given(EncodeWork& w, const Plane& plane, Result<Plane> made) {
  if (made.ok() || !only_not_finite(plane, *w.codec)) return made;
  w.nonfinite.fetch_add(1);
  return w.keep_nonfinite ? w.codec->raw_of_any(plane) : std::move(made);
}

// The given rows in the form of the copied rows before them.
Result<Plane> beside_copies(EncodeWork& w, const Plane& given) {
  const SideCoding* side = w.codec->side(given.layer, given.part, given.side);
  if (given.bits != 0 || !side || given.dtype == side->raw_dtype) return given;
  return or_as_given(w, given, w.encode ? w.codec->encode(given) : w.codec->raw(given));
}

// The copied rows and the given ones as one plane.
Result<Plane> with_copies(EncodeWork& w, const EncodeWork::Slot& slot) {
  if (slot.given) KV_RETURN_IF_ERROR(check_size(*slot.given));
  if (w.copies.empty()) return *slot.given;
  const PartSpec& spec = w.codec->model().layers[slot.layer].parts[slot.part];
  uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
  std::vector<Plane> pieces;
  for (size_t i = 0; i < w.copies.size(); ++i) {
    uint32_t first = w.copies[i].first_row / rate, end = w.copies[i].end_row / rate;
    if (first == end) continue;
    const Plane* source = find_plane(*w.sources[i], slot.layer, slot.part, slot.side);
    if (!source) {
      return invalid_argument(where(slot.layer, slot.part, slot.side) + "the source of rows [" +
                              std::to_string(first) + ", " + std::to_string(end) +
                              ") has no such plane");
    }
    KV_ASSIGN_OR_RETURN(Plane piece, slice_rows(*source, first, end));
    pieces.push_back(std::move(piece));
  }
  if (slot.given && slot.given->rows() > 0) {
    KV_ASSIGN_OR_RETURN(Plane given, beside_copies(w, *slot.given));
    pieces.push_back(std::move(given));
  }
  auto joined = join_rows(pieces);
  if (!joined.ok()) {
    return invalid_argument(where(slot.layer, slot.part, slot.side) + joined.status().message());
  }
  return joined;
}

// True if the codec left rows exact that it should have coded.
bool fell_back(const Plane& p, const Codec& codec) {
  const SideCoding* side = codec.side(p.layer, p.part, p.side);
  if (!side || side->bits == 0) return false;
  uint32_t row = p.first_row;
  for (const RowRun& run : p.runs) {
    row += run.rows;
    if (run.form == RunForm::exact && row > codec.profile().exact_tokens) return true;
  }
  return false;
}

// Complete blocks in the profile's codes, tails exact in the raw dtype.
Result<Plane> stored_form(EncodeWork& w, const Plane& plane, std::span<uint8_t> place) {
  bool coded = std::any_of(plane.runs.begin(), plane.runs.end(),
                           [](const RowRun& r) { return r.form == RunForm::codes; });
  if (!w.encode || coded) KV_RETURN_IF_ERROR(w.codec->check(plane));
  if (!w.encode) {
    const SideCoding* side = w.codec->side(plane.layer, plane.part, plane.side);
    return coded || plane.dtype == side->raw_dtype ? plane : w.codec->raw(plane);
  }
  KV_ASSIGN_OR_RETURN(Plane encoded, w.codec->encode(plane, place));
  if (fell_back(encoded, *w.codec)) w.raw_fallbacks.fetch_add(1);
  return encoded;
}

Result<Plane> finished_plane(EncodeWork& w, const EncodeWork::Slot& slot) {
  KV_ASSIGN_OR_RETURN(Plane plane, with_copies(w, slot));
  const Object& o = w.object;
  if (is_supplement(o)) {
    if (plane.first_row > w.keep.first || plane.end_row() < w.keep.end) {
      return invalid_argument(where(slot.layer, slot.part, slot.side) + "expected rows [" +
                              std::to_string(w.keep.first) + ", " + std::to_string(w.keep.end) +
                              "), given [" + std::to_string(plane.first_row) + ", " +
                              std::to_string(plane.end_row()) + ")");
    }
    if (plane.first_row != w.keep.first || plane.end_row() != w.keep.end) {
      KV_ASSIGN_OR_RETURN(plane, slice_rows(plane, w.keep.first, w.keep.end));
    }
  }
  return or_as_given(w, plane, stored_form(w, plane, slot.place));
}

// True if the slot's result has exactly the rows given.
bool as_given(const EncodeWork& w, const Plane& p) {
  return is_main(w.object.name.kind) || (p.first_row == w.keep.first && p.end_row() == w.keep.end);
}

// Gives every plane its place in one pool buffer, if all sizes can be told from the input.
// Otherwise none has one: a plane's errors are reported when it is coded.
void set_places(EncodeWork& w) {
  if (!w.encode || !w.copies.empty()) return;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const auto& slot : w.slots) {
    if (!check_size(*slot.given).ok() || !as_given(w, *slot.given)) return;
    auto size = w.codec->encoded_bytes(*slot.given);
    if (!size.ok()) return;
    sizes.push_back(*size);
    total += *size;
  }
  for (const StateBlob& s : w.object.states) total += s.bytes.size();
  if (total == 0 || RamPool::slab_bytes(total) > w.stored.bytes()) return;
  w.payload = w.pool->allocate(total, w.stored, w.object.ns);
  uint8_t* at = w.payload.data();
  for (size_t i = 0; i < sizes.size(); at += sizes[i++]) w.slots[i].place = {at, sizes[i]};
}

// True if every plane lies in its place in the work's payload.
bool in_place(const EncodeWork& w, const Object& object) {
  if (w.payload.size() == 0) return false;
  for (size_t i = 0; i < w.slots.size(); ++i) {
    if (object.planes[i].bytes.data() != w.slots[i].place.data()) return false;
  }
  return true;
}

// Copied rows are right if their source still has its checksum.
Status check_sources(EncodeWork& w) {
  std::vector<RamObject> all = w.sources;
  if (w.states_of) all.push_back(w.states_of);
  const Object* last = nullptr;
  for (const RamObject& source : all) {
    if (std::exchange(last, source.object.get()) == source.object.get()) continue;
    if (!intact(source)) w.damaged.push_back(source.object);
  }
  if (w.damaged.empty()) return {};
  return {StatusCode::not_found,
          "source " + w.damaged.front()->name.id.hex() + " was damaged in RAM"};
}

}  // namespace

Status prepare(EncodeWork& w) {
  KV_RETURN_IF_ERROR(check_states(w));
  std::vector<bool> used(w.object.planes.size());
  for (const auto& m : expected_rows(w)) {
    for (const SideSpec& side : sides_of(w.codec->model().layers[m.layer].parts[m.part])) {
      const Plane* given = find_plane(w.object, m.layer, m.part, side.side);
      if (!given && w.copies.empty()) {
        uint32_t first = is_supplement(w.object) ? w.keep.first : w.object.first_token;
        uint32_t end = is_supplement(w.object) ? w.keep.end : w.object.end_token();
        return invalid_argument(where(m.layer, m.part, side.side) + "expected rows [" +
                                std::to_string(first) + ", " + std::to_string(end) +
                                "), given no plane");
      }
      if (given) used[static_cast<size_t>(given - w.object.planes.data())] = true;
      w.slots.push_back({m.layer, m.part, side.side, given});
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const Plane& p = w.object.planes[i];
    if (!used[i]) {
      return invalid_argument(where(p.layer, p.part, p.side) + "a " +
                              to_string(w.object.name.kind) +
                              " holds no such plane, or holds it twice");
    }
  }
  w.planes.resize(w.slots.size());
  return {};
}

void encode_planes(EncodeWork& w) {
  std::call_once(w.placed, [&w] { set_places(w); });
  while (!w.failed.load()) {
    size_t i = w.next.fetch_add(1);
    if (i >= w.slots.size()) return;
    auto plane = finished_plane(w, w.slots[i]);
    if (plane.ok()) {
      w.planes[i] = std::move(*plane);
      continue;
    }
    fail(w, plane.status());
  }
}

void fail(EncodeWork& w, Status status) {
  std::lock_guard lock(w.mutex);
  if (!w.failed.exchange(true)) w.error = std::move(status);
}

Result<PoolBuffer> buffer_in_pool(uint64_t bytes, RamPool& pool, Charge& charge,
                                  std::string_view ns) {
  uint64_t needed = RamPool::slab_bytes(bytes);
  if (charge.bytes() < needed) {
    auto more = pool.try_charge(ChargeKind::stored, needed - charge.bytes());
    if (!more) return Status(StatusCode::busy, "no RAM for an object larger than expected");
    charge.merge(std::move(*more));
  }
  return pool.allocate(bytes, charge, ns);
}

Result<RamObject> into_buffer(Object object, PoolBuffer buffer) {
  uint8_t* at = buffer.data();
  Xxh128Stream sum;
  auto take = [&](std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {  // summed while the bytes are in a core's cache
      const auto step = bytes.first(std::min(bytes.size(), kCopyStepBytes));
      if (at != step.data()) std::memcpy(at, step.data(), step.size());
      sum.update({at, step.size()});
      at += step.size();
      bytes = bytes.subspan(step.size());
    }
  };
  for (const Plane& p : object.planes) take(p.bytes.span());
  for (const StateBlob& s : object.states) take(s.bytes.span());
  KV_RETURN_IF_ERROR(attach_payload(object, std::move(buffer).freeze()));
  return RamObject{std::make_shared<const Object>(std::move(object)), sum.digest()};
}

namespace {

// Moves the object's payload into one pool buffer and computes its sum. Planes elsewhere are
// copied.
Result<RamObject> into_pool(EncodeWork& w, Object object) {
  PoolBuffer buffer;
  if (in_place(w, object)) {
    buffer = std::move(w.payload);
  } else {
    KV_ASSIGN_OR_RETURN(buffer,
                        buffer_in_pool(object.payload_bytes(), *w.pool, w.stored, object.ns));
  }
  return into_buffer(std::move(object), std::move(buffer));
}

}  // namespace

Result<RamObject> assemble(EncodeWork& w) {
  if (w.failed.load()) return w.error;
  Object object = std::move(w.object);
  object.planes = std::move(w.planes);
  if (is_supplement(object) && w.keep.first < w.keep.end) {
    object.name.first_row = w.keep.first;
    object.name.end_row = w.keep.end;
  }
  for (const StateBlob& s : object.states) KV_RETURN_IF_ERROR(check_state(w, s));
  KV_RETURN_IF_ERROR(validate(object, w.codec->model(), w.codec->profile()));
  if (object.payload_bytes() > kMaxObjectBytes) {
    return invalid_argument("object of " + std::to_string(object.payload_bytes()) +
                            " bytes over its limit " + std::to_string(kMaxObjectBytes));
  }
  auto pooled = into_pool(w, std::move(object));
  KV_RETURN_IF_ERROR(check_sources(w));
  return pooled;
}

}  // namespace kv
