// Checks of a put's planes and states against its kind and model.
#include "cachesvc/core/encode_input.h"

#include <algorithm>
#include <tuple>

#include "codec/finite.h"

namespace kv {
namespace {

// The states that this object must hold: a carry's, or all checkpoint parts'.
std::vector<PartGroup::Member> expected_states(const EncodeInput& in) {
  const Object& o = in.object;
  if (in.is_supplement()) {
    const PartGroup& g = (*in.groups)[o.name.group];
    return o.name.first_row == o.name.end_row ? g.members : std::vector<PartGroup::Member>{};
  }
  std::vector<PartGroup::Member> out;
  if (o.name.kind != ObjectKind::snapshot) return out;
  for (const auto& g : *in.groups) {
    if (g.spec.has_rows() || g.spec.snapshot != SnapshotPlace::checkpoint) continue;
    out.insert(out.end(), g.members.begin(), g.members.end());
  }
  return out;
}

// Carries of one group hold the same inputs of parts of the same shape.
Status check_carry_sizes(const EncodeInput& in) {
  const auto& given = in.object.states;
  for (const StateBlob& s : given) {
    const PartSpec& spec = in.codec->model().layers[s.layer].parts[s.part];
    if (spec.kind != PartKind::pooled || s.bytes.size() == given[0].bytes.size()) continue;
    return invalid_argument(
        "layer " + std::to_string(s.layer) + " part " + std::to_string(s.part) +
        " (pooled): expected a carry of " + std::to_string(given[0].bytes.size()) +
        " bytes, as of layer " + std::to_string(given[0].layer) + " part " +
        std::to_string(given[0].part) + ", given " + std::to_string(s.bytes.size()));
  }
  return {};
}

Status check_states(const EncodeInput& in) {
  auto expected = expected_states(in);
  const auto& given = in.object.states;
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
    return invalid_argument(std::string(to_string(in.object.name.kind)) + ": expected " +
                            std::to_string(expected.size()) + " states, given " +
                            std::to_string(given.size()));
  }
  return check_carry_sizes(in);
}

// The members whose rows this object must hold.
std::vector<PartGroup::Member> expected_rows(const EncodeInput& in) {
  const Object& o = in.object;
  std::vector<PartGroup::Member> out;
  if (in.is_supplement()) {
    if (o.name.first_row < o.name.end_row) out = (*in.groups)[o.name.group].members;
  } else if (is_main(o.name.kind)) {
    for (const auto& g : *in.groups) {
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

}  // namespace

std::string PlaneSlot::where() const {
  return "layer " + std::to_string(layer) + " part " + std::to_string(part) + " side " +
         to_string(side) + ": ";
}

const Plane* find_plane(const Object& o, uint16_t layer, uint16_t part, Side side) {
  for (const Plane& p : o.planes) {
    if (p.layer == layer && p.part == part && p.side == side) return &p;
  }
  return nullptr;
}

Status check_state(const EncodeInput& in, const StateBlob& s, EncodeCounts& counts) {
  const PartSpec& spec = in.codec->model().layers[s.layer].parts[s.part];
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
  counts.nonfinite.fetch_add(1);
  if (in.keep_nonfinite) return {};
  return invalid_argument(at + "values of " + to_string(spec.dtype) + ": one is not finite");
}

Result<std::vector<PlaneSlot>> plane_slots(const EncodeInput& in) {
  KV_RETURN_IF_ERROR(check_states(in));
  std::vector<PlaneSlot> slots;
  std::vector<bool> used(in.object.planes.size());
  for (const auto& m : expected_rows(in)) {
    for (const SideSpec& side : sides_of(in.codec->model().layers[m.layer].parts[m.part])) {
      const Plane* given = find_plane(in.object, m.layer, m.part, side.side);
      if (!given && in.copies.empty()) {
        uint32_t first = in.is_supplement() ? in.keep.first : in.object.first_token;
        uint32_t end = in.is_supplement() ? in.keep.end : in.object.end_token();
        return invalid_argument(PlaneSlot{m.layer, m.part, side.side}.where() + "expected rows [" +
                                std::to_string(first) + ", " + std::to_string(end) +
                                "), given no plane");
      }
      if (given) used[static_cast<size_t>(given - in.object.planes.data())] = true;
      slots.push_back({m.layer, m.part, side.side, given});
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const Plane& p = in.object.planes[i];
    if (!used[i]) {
      return invalid_argument(PlaneSlot{p.layer, p.part, p.side}.where() + "a " +
                              to_string(in.object.name.kind) +
                              " holds no such plane, or holds it twice");
    }
  }
  return slots;
}

}  // namespace kv
