// Lengths that fit, and decoding.
#include "cachesvc/core/fetch_call.h"

#include <algorithm>

#include "cachesvc/core/encode.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/promoter.h"

namespace kv {
DType dtype_of(FetchForm form) {
  return form == FetchForm::f32 ? DType::f32 : form == FetchForm::f16 ? DType::f16 : DType::bf16;
}

uint64_t decoded_bytes_of(const FetchCall& f, const Record& r) {
  if (f.request.form == FetchForm::stored) return 0;
  const RealmState& realm = *f.realm;
  Need need{r.name.kind, 0, r.name.group, r.name.first_row, r.name.end_row, true};
  bool states = r.name.kind == ObjectKind::snapshot ||
                (r.name.kind == ObjectKind::supplement && need.first_row == need.end_row);
  if (states) return RamPool::slab_bytes(r.payload_bytes);
  if (is_main(r.name.kind)) {
    need.first_row = realm.tree.first_token(r.node);
    need.end_row = realm.tree.end_token(r.node);
  }
  return RamPool::slab_bytes(
      decoded_bytes(*realm.model, realm.groups, need, dtype_of(f.request.form)));
}

// Bytes of what hangs on the blocks are taken as constant.
uint32_t shorter(const FetchCall& f, const Hit& hit, uint64_t needed, uint64_t bytes,
                 const std::function<bool(const Record&)>& counted) {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && needed > bytes; ++u) {
    const Record& r = *u->record;
    if (!is_main(r.name.kind)) continue;
    needed -= (counted(r) ? Promoter::room_for(r).stored : 0) + decoded_bytes_of(f, r);
    end = std::min(end, f.realm->tree.first_token(r.node));
  }
  if (end < hit.plan.tokens) return end;
  uint32_t block = f.realm->block_tokens();  // no block: the next state before this one
  return end == 0 ? 0 : (end - 1) / block * block;
}

uint32_t shorter_reply(const FetchCall& f, const Hit& hit, uint64_t decoded, uint64_t limit) {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && decoded > limit; ++u) {
    const Record& r = *u->record;
    if (!is_main(r.name.kind)) continue;
    decoded -= decoded_bytes_of(f, r);
    end = std::min(end, f.realm->tree.first_token(r.node));
  }
  return end < hit.plan.tokens ? end : 0;
}

std::string shortfall_of(const RealmState& realm, const Hit& hit) {
  std::string text = hit.plan.shortfall.text;
  if (hit.plan.tokens > 0 || !realm.others_lost) return text;
  return text + (text.empty() ? "" : "; ") +
         "of this model there are objects that serve nothing: the profile that they were stored "
         "under, or their model record, is lost";
}

uint64_t decoded_slab_bytes(const Object& object, DType out) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) {
    bytes += uint64_t{p.rows()} * p.heads * p.dim * dtype_bytes(out);
  }
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return RamPool::slab_bytes(bytes);
}

Result<ObjectPtr> decode_object(const Object& object, const Codec& codec, DType out, RamPool& pool,
                                Charge charge) {
  Object decoded = object;
  uint64_t total = 0;
  for (Plane& p : decoded.planes) {
    p.dtype = out;
    p.bits = 0;
    p.runs = {{RunForm::exact, p.rows()}};
    total += plane_bytes(p);
  }
  for (const StateBlob& s : decoded.states) total += s.bytes.size();
  PoolBuffer buffer = pool.allocate(total, charge);
  uint8_t* at = buffer.data();
  for (size_t i = 0; i < object.planes.size(); ++i) {
    const Plane& from = object.planes[i];
    uint64_t bytes = plane_bytes(decoded.planes[i]);
    KV_RETURN_IF_ERROR(codec.decode_rows(from, from.first_row, from.end_row(), out, {at, bytes}));
    at += bytes;
  }
  for (const StateBlob& s : object.states) at = std::copy_n(s.bytes.data(), s.bytes.size(), at);
  KV_RETURN_IF_ERROR(attach_payload(decoded, std::move(buffer).freeze()));
  return ObjectPtr(std::make_shared<const Object>(std::move(decoded)));
}

}  // namespace kv
