// Planes decoded, cut to some heads, or both.
#include "cachesvc/core/reply_object.h"

#include <algorithm>

namespace kv {
namespace {

// The plane's shape in the reply, without bytes: every row exact in the reply's dtype, or as it is.
Plane decoded_shape(const Plane& plane, FetchForm form) {
  Plane out = plane;
  out.bytes = {};
  if (form == FetchForm::stored) return out;
  out.dtype = dtype_of(form);
  out.bits = 0;
  out.runs = {{RunForm::exact, plane.rows()}};
  return out;
}

// Planes of one reply. `scratch` is set if some plane is decoded and then cut.
class ReplyPlanes {
 public:
  ReplyPlanes(const Codec& codec, FetchForm form, const Selection& selection,
              std::span<uint8_t> scratch)
      : codec_(codec), form_(form), selection_(selection), scratch_(scratch) {}

  /// `shape`: the resulting plane. `dst`: of its size.
  Status write(const Plane& plane, const Plane& shape, std::span<uint8_t> dst) const {
    if (form_ == FetchForm::stored) {
      copy_heads(plane, plane.bytes.span(), selection_, dst);
      return {};
    }
    if (shape.heads == plane.heads) return decode(plane, dst);
    const Plane whole = decoded_shape(plane, form_);
    auto rows = scratch_.first(plane_bytes(whole));
    KV_RETURN_IF_ERROR(decode(plane, rows));
    copy_heads(whole, rows, selection_, dst);
    return {};
  }

 private:
  Status decode(const Plane& plane, std::span<uint8_t> dst) const {
    return codec_.decode_rows(plane, plane.first_row, plane.end_row(), dtype_of(form_), dst);
  }
  const Codec& codec_;
  const FetchForm form_;
  const Selection& selection_;
  const std::span<uint8_t> scratch_;
};

}  // namespace

DType dtype_of(FetchForm form) {
  return form == FetchForm::f32 ? DType::f32 : form == FetchForm::f16 ? DType::f16 : DType::bf16;
}

FetchForm form_to_make(const Codec& codec, FetchForm form) {
  if (form == FetchForm::stored) return form;
  const auto& layers = codec.model().layers;
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    for (uint32_t part = 0; part < layers[layer].parts.size(); ++part) {
      for (Side each : {Side::k, Side::v, Side::other}) {  // without the memory of sides_of()
        const SideCoding* side = codec.side(layer, part, each);
        if (side && (side->coded() || side->raw_dtype != dtype_of(form))) return form;
      }
    }
  }
  return FetchForm::stored;
}

ReplyBytes reply_bytes(const Object& object, FetchForm form, const Selection& selection) {
  ReplyBytes bytes;
  if (form == FetchForm::stored && selection.heads.all()) return bytes;
  for (const Plane& p : object.planes) {
    if (!selection.has(p.layer, p.part)) continue;
    const Plane whole = decoded_shape(p, form), cut = shape_of_heads(whole, selection);
    bytes.result += plane_bytes(cut);
    const bool two_steps = form != FetchForm::stored && cut.heads != whole.heads;
    if (two_steps) bytes.scratch = std::max(bytes.scratch, plane_bytes(whole));
  }
  for (const StateBlob& s : object.states) {
    if (selection.has(s.layer, s.part)) bytes.result += s.bytes.size();
  }
  return bytes;
}

Result<ObjectPtr> make_reply_object(const ObjectPtr& object, const Codec& codec, FetchForm form,
                                    const Selection& selection, RamPool& pool, Charge charge) {
  const ObjectPtr taken = select_parts(object, selection);
  const ReplyBytes bytes = reply_bytes(*object, form, selection);
  if (!taken || bytes.result == 0) return taken;
  Charge scratch_charge =
      bytes.scratch > 0 ? charge.split(RamPool::slab_bytes(bytes.scratch)) : Charge();
  PoolBuffer scratch =
      bytes.scratch > 0 ? pool.allocate(bytes.scratch, scratch_charge) : PoolBuffer();
  PoolBuffer buffer = pool.allocate(bytes.result, charge, object->ns);
  const ReplyPlanes planes(codec, form, selection, {scratch.data(), bytes.scratch});
  Object out = *taken;
  uint8_t* at = buffer.data();
  for (size_t i = 0; i < out.planes.size(); ++i) {
    out.planes[i] = shape_of_heads(decoded_shape(taken->planes[i], form), selection);
    const uint64_t size = plane_bytes(out.planes[i]);
    KV_RETURN_IF_ERROR(planes.write(taken->planes[i], out.planes[i], {at, size}));
    at += size;
  }
  for (const StateBlob& s : taken->states) at = std::copy_n(s.bytes.data(), s.bytes.size(), at);
  KV_RETURN_IF_ERROR(attach_payload(out, std::move(buffer).freeze()));
  return ObjectPtr(std::make_shared<const Object>(std::move(out)));
}

}  // namespace kv
