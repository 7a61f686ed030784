// Reply bytes of a running fetch, and lengths that fit.
#include "cachesvc/core/running_fetch.h"

#include <algorithm>

#include "cachesvc/core/needs.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/reply_object.h"

namespace kv {

uint64_t decoded_bytes_of(const RunningFetch& f, const Record& r) {
  if (!f.copies()) return 0;
  const RealmState& realm = *f.realm;
  Need need{r.name.kind, 0, r.name.group, r.name.first_row, r.name.end_row, true};
  bool states = r.name.kind == ObjectKind::snapshot ||
                (r.name.kind == ObjectKind::supplement && need.first_row == need.end_row);
  if (states) return RamPool::slab_bytes(r.payload_bytes);
  if (is_main(r.name.kind)) {
    need.first_row = realm.tree.first_token(r.node);
    need.end_row = realm.tree.end_token(r.node);
  }
  if (need.end_row <= f.request.selection.from_token) return 0;
  if (f.request.form == FetchForm::stored) return RamPool::slab_bytes(r.payload_bytes);
  return RamPool::slab_bytes(decoded_bytes(*realm.model, realm.groups, need,
                                           dtype_of(f.request.form), f.request.selection));
}

uint32_t shorter_reply(const RunningFetch& f, const Hit& hit, uint64_t decoded, uint64_t limit) {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && decoded > limit; ++u) {
    const Record& r = *u->record;
    if (!is_main(r.name.kind)) continue;
    decoded -= decoded_bytes_of(f, r);
    end = std::min(end, f.realm->tree.first_token(r.node));
  }
  return end < hit.plan.tokens ? end : 0;
}

}  // namespace kv
