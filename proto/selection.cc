// Selections of objects' planes, states, rows and heads.
#include "proto/selection.h"

#include <algorithm>

namespace kv {
namespace {

Status check_range(const char* what, Selection::Range range, size_t most) {
  const bool in_order =
      range.end == Selection::kToEnd ? range.first < most : range.first < range.end;
  if (in_order && (range.end == Selection::kToEnd || range.end <= most)) return {};
  return invalid_argument("selection of " + std::string(what) + " [" + std::to_string(range.first) +
                          ", " + std::to_string(range.end) + "): there are " +
                          std::to_string(most));
}

uint32_t most_parts(const ModelSpec& model) {
  size_t most = 0;
  for (const LayerSpec& layer : model.layers) most = std::max(most, layer.parts.size());
  return static_cast<uint32_t>(most);
}

// The heads of every selected part that has several of them.
Status check_heads(const Selection& selection, const ModelSpec& model) {
  if (selection.heads.all()) return {};
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      bool takes = selection.has(static_cast<uint16_t>(l), static_cast<uint16_t>(p));
      if (!takes || !part.has_rows() || part.heads <= 1) continue;
      KV_RETURN_IF_ERROR(check_range("heads", selection.heads, part.heads));
    }
  }
  return {};
}

bool takes_all_heads(const Selection& selection, uint32_t heads) {
  return heads <= 1 || selection.heads.all();
}

}  // namespace

Status validate(const Selection& selection, const ModelSpec& model) {
  if (!selection.layers.all()) {
    KV_RETURN_IF_ERROR(check_range("layers", selection.layers, model.layers.size()));
  }
  if (!selection.parts.all()) {
    KV_RETURN_IF_ERROR(check_range("parts", selection.parts, most_parts(model)));
  }
  return check_heads(selection, model);
}

bool all_rows_below(const Object& object, const ModelSpec& model, const Selection& selection) {
  if (selection.from_token == 0 || !object.states.empty()) return false;
  return std::all_of(object.planes.begin(), object.planes.end(), [&](const Plane& p) {
    const PartSpec& part = model.layers[p.layer].parts[p.part];
    const uint64_t rate = part.kind == PartKind::pooled ? part.rate : 1;
    return p.end_row() * rate <= selection.from_token;
  });
}

ObjectPtr select_parts(const ObjectPtr& object, const Selection& selection) {
  if (selection.layers.all() && selection.parts.all()) return object;
  Object out = *object;
  std::erase_if(out.planes, [&](const Plane& p) { return !selection.has(p.layer, p.part); });
  std::erase_if(out.states, [&](const StateBlob& s) { return !selection.has(s.layer, s.part); });
  if (out.planes.empty() && out.states.empty()) return nullptr;
  return std::make_shared<const Object>(std::move(out));
}

uint32_t selected_heads(const Selection& selection, uint32_t heads) {
  if (takes_all_heads(selection, heads)) return heads;
  const uint32_t end = selection.heads.end == Selection::kToEnd ? heads : selection.heads.end;
  return std::min(end, heads) - std::min<uint32_t>(selection.heads.first, heads);
}

Plane shape_of_heads(const Plane& plane, const Selection& selection) {
  Plane out = plane;
  out.heads = selected_heads(selection, plane.heads);
  out.bytes = {};
  return out;
}

void copy_heads(const Plane& plane, std::span<const uint8_t> src, const Selection& selection,
                std::span<uint8_t> dst) {
  const uint64_t heads = selected_heads(selection, plane.heads);
  const uint64_t first = takes_all_heads(selection, plane.heads) ? 0 : selection.heads.first;
  const uint8_t* from = src.data();
  uint8_t* to = dst.data();
  // Copies the selected heads of `one` bytes each, out of plane.heads that lie together.
  auto copy = [&](uint64_t one) {
    to = std::copy_n(from + first * one, heads * one, to);
    from += plane.heads * one;
  };
  for (const RowRun& run : plane.runs) {
    if (run.form == RunForm::codes) {
      copy(run.rows * code_bytes(plane.dim, plane.bits));
      copy(uint64_t{run.rows} * 2);  // scales
      continue;
    }
    for (uint32_t row = 0; row < run.rows; ++row) {
      copy(uint64_t{plane.dim} * dtype_bytes(plane.dtype));
    }
  }
}

}  // namespace kv
