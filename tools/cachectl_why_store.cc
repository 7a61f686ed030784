// Why a directory's files serve no more of a sequence.
#include <algorithm>

#include "proto/identity.h"
#include "tools/cachectl_why.h"

namespace kv::cachectl {
namespace {

// The undamaged file of this block or tail.
bool is_there(const StoreView& store, const Id& id) {
  const auto files = store.with_id(id);
  return std::any_of(files.begin(), files.end(), [](const InspectedFile* f) {
    return f->kind == FileKind::block || f->kind == FileKind::tail;
  });
}

bool is_damaged(const StoreView& store, const Id& id) {
  const Inspection& all = store.inspection();
  const bool in_place =
      std::any_of(all.files.begin(), all.files.end(), [&](const InspectedFile& f) {
        return f.name.id == id && f.status.code() == StatusCode::corruption;
      });
  return in_place ||
         std::any_of(all.quarantined.begin(), all.quarantined.end(), [&](const StrayFile& f) {
           return f.path.find(id.hex()) != std::string::npos;
         });
}

// The sequence as far as the files go, and the first that is not there.
RequestRecord of_realm(const StoreView& store, const ModelRecord& model, uint32_t block,
                       const std::vector<Token>& tokens) {
  RequestRecord r;
  r.kind = RequestKind::question;
  r.ns = model.ns;
  r.model = model.model.name;
  r.fingerprint = model.model.fingerprint;
  r.profile = model.profile;
  r.block_tokens = block;
  r.asked = static_cast<uint32_t>(tokens.size());
  const Realm realm{model.ns, r.fingerprint, r.profile};
  Id parent{}, next{};
  uint32_t at = 0;
  while (at < r.asked) {
    const uint32_t end = std::min(at + block, r.asked);
    const bool whole = end - at == block;
    auto id_to = [&](uint32_t to) {
      return block_id(realm, parent, std::span(tokens).subspan(at, to - at), {},
                      to - at == block ? ObjectKind::block : ObjectKind::tail);
    };
    next = id_to(end);
    if (is_there(store, next)) {
      at = end;
      parent = next;
      continue;
    }
    if (is_damaged(store, next)) break;
    for (uint32_t to = end - (whole ? 1 : 0); to > at; --to) {  // a tail on the way
      if (!is_there(store, id_to(to))) continue;
      at = to;
      break;
    }
    break;
  }
  r.common = at;
  r.ssd_tokens = std::min(at, r.asked - 1);
  r.missing_from = r.ssd_tokens;
  if (r.ssd_tokens + 1 < r.asked) {
    r.missing = is_damaged(store, next) ? Missing::damaged : Missing::not_there;
  }
  return r;
}

}  // namespace

std::vector<RequestRecord> why_of(const StoreView& store, const std::vector<Token>& tokens,
                                  const std::string& ns) {
  std::vector<RequestRecord> out;
  for (const auto& model : store.models()) {
    auto profile = store.profile(model->profile);
    if (!profile || (!ns.empty() && model->ns != ns)) continue;
    out.push_back(of_realm(store, *model, profile->block_tokens, tokens));
  }
  std::stable_sort(out.begin(), out.end(), [](const RequestRecord& a, const RequestRecord& b) {
    return a.common > b.common;
  });
  for (RequestRecord& r : out) {  // another one of the namespace that has more of them
    if (r.missing != Missing::not_there) continue;
    for (const RequestRecord& other : out) {
      if (other.ns != r.ns || other.common <= r.common) continue;
      r.missing = Missing::other_model;
      r.other = other.fingerprint;
      r.other_tokens = other.common;
      break;
    }
  }
  return out;
}

}  // namespace kv::cachectl
