// From a hit's end to a cause.
#include "cachesvc/core/misses.h"

#include <algorithm>

#include "cachesvc/core/entry_record.h"
#include "index/symbols.h"

namespace kv {
namespace {

constexpr size_t kLookedBack = 64;        // nodes, for the nearest end
constexpr size_t kOtherRealms = 16;       // looked at for the same tokens
constexpr uint32_t kLeastElsewhere = 16;  // tokens more than here, else it is another prompt

Id id_between(const RealmState& realm, const Id& parent, const Query& query, uint32_t first,
              uint32_t end, bool snapshot = false) {
  const std::span<const Token> tokens = std::span(query.tokens).subspan(first, end - first);
  const auto extras = extras_in(query.extras, first, end);
  if (snapshot) return snapshot_id(realm.realm, parent, tokens, extras);
  const bool whole = end - first == realm.block_tokens();
  return block_id(realm.realm, parent, tokens, extras,
                  whole ? ObjectKind::block : ObjectKind::tail);
}

Id node_id(const RealmState& realm, const Hit& hit, size_t blocks) {
  return blocks == 0 ? Id{} : realm.nodes.at(hit.match.path[blocks - 1]).id;
}

bool misses_part(ShortReason reason) {
  return reason == ShortReason::missing_rows || reason == ShortReason::missing_carry ||
         reason == ShortReason::missing_snapshot;
}

}  // namespace

void split_tiers(const RealmState& realm, const Hit& hit, RequestRecord& out) {
  uint64_t ssd = 0;
  for (const Hit::Use& u : hit.uses) {
    if (u.record->ram || !is_main(u.record->name.kind)) continue;
    ssd += u.end_token - std::min(u.end_token, realm.tree.first_token(u.record->node));
  }
  out.ssd_tokens = static_cast<uint32_t>(std::min<uint64_t>(ssd, hit.plan.tokens));
  out.ram_tokens = hit.plan.tokens - out.ssd_tokens;
}

bool Misses::departed(const Id& id, ObjectKind kind, RequestRecord& out) const {
  const auto found = departures_.find(id, kind);
  if (!found) return false;
  out.missing = found->cause.why;
  out.since_ms = found->at_ms;
  out.by = env_.namespaces.name(found->cause.by);
  return true;
}

// The query's tokens from `common` on are not stored here at all.
void Misses::beyond(const RealmState& realm, const Query& query, const Hit& hit,
                    RequestRecord& out) const {
  const uint32_t block = realm.block_tokens();
  const auto asked = static_cast<uint32_t>(query.tokens.size());
  const size_t at = std::min<size_t>(hit.common / block, hit.match.path.size());
  const auto first = static_cast<uint32_t>(at * block);
  const Id parent = node_id(realm, hit, at);
  auto is_gone = [&](uint32_t end) {
    return end > first && end <= asked &&
           departed(id_between(realm, parent, query, first, end), ObjectKind::block, out);
  };
  if (is_gone(first + block)) return;
  if (asked < first + block && (is_gone(asked) || is_gone(asked - 1))) return;
  if (elsewhere(realm, query, out)) return;
  out.missing = Missing::never_stored;
  out.since_ms = departures_.complete_since_ms();
}

// The sequence is known here as far as `common`, but something of it is not there.
void Misses::gap(const RealmState& realm, const Query& query, const Hit& hit, uint32_t position,
                 RequestRecord& out) const {
  const uint32_t block = realm.block_tokens();
  const size_t at = position / block;
  const Shortfall& why = hit.plan.shortfall;
  out.missing = Missing::part;
  if (at < hit.match.path.size()) {
    const RealmState::Node& node = realm.nodes.at(hit.match.path[at]);
    if (node.main && !node.main->usable(Clock::now())) {
      out.missing = Missing::unreadable;
      return;
    }
    if (departed(node.id, node.main ? ObjectKind::supplement : ObjectKind::block, out)) return;
  }
  if (why.reason == ShortReason::missing_snapshot) {
    const size_t blocks = std::min<size_t>(why.wanted / block, hit.match.path.size());
    const auto first = static_cast<uint32_t>(blocks * block);
    const Id parent = node_id(realm, hit, blocks);
    if (why.wanted > first && departed(id_between(realm, parent, query, first, why.wanted, true),
                                       ObjectKind::snapshot, out)) {
      return;
    }
  }
  for (const SideCandidate& side : hit.match.candidates) {
    const RealmState::Node& node = realm.nodes.at(side.node);
    if (node.main && !node.main->usable(Clock::now())) {
      out.missing = Missing::unreadable;
      return;
    }
    if (side.common > position && departed(node.id, ObjectKind::supplement, out)) return;
  }
}

// Other models and profiles of the namespace, never other namespaces.
bool Misses::elsewhere(const RealmState& realm, const Query& query, RequestRecord& out) const {
  size_t looked = 0;
  for (const auto& other : index_.realms().all()) {
    if (other.get() == &realm || other->realm.ns != realm.realm.ns) continue;
    if (++looked > kOtherRealms) break;
    auto match = other->tree.match(query.tokens, query.extras);
    if (!match.ok() || match->common < out.common + kLeastElsewhere) continue;
    if (match->common <= out.other_tokens) continue;
    const bool same = other->realm.fingerprint == realm.realm.fingerprint;
    out.missing = same ? Missing::other_profile : Missing::other_model;
    out.other = same ? other->realm.profile : other->realm.fingerprint;
    out.other_tokens = match->common;
  }
  return out.other_tokens > 0;
}

void Misses::nearest_end(const RealmState& realm, const Hit& hit, RequestRecord& out) const {
  const auto& path = hit.match.path;
  auto look = [&](NodeId id) {
    const RealmState::Node& node = realm.nodes.at(id);
    const uint32_t end = realm.tree.end_token(id);
    if (!node.main || !node.main->wishes.words || end <= out.end || end > hit.common) return;
    out.end = end;
    out.label = node.main->wishes.words->label;
  };
  for (const SideCandidate& side : hit.match.candidates) look(side.node);
  for (size_t i = 0; i < std::min(path.size(), kLookedBack) && out.end == 0; ++i) {
    look(path[path.size() - 1 - i]);
  }
}

void Misses::explain(const RealmState& realm, const Query& query, const Hit& hit, uint32_t served,
                     Missing limit, RequestRecord& out) const {
  RequestRecord fresh;  // of a plan before this one only number and times stay
  fresh.number = out.number;
  fresh.kind = out.kind;
  fresh.wait_us = out.wait_us;
  fresh.read_us = out.read_us;
  fresh.make_us = out.make_us;
  out = std::move(fresh);
  out.ns = realm.realm.ns;
  out.model = realm.model->name;
  out.fingerprint = realm.realm.fingerprint;
  out.profile = realm.realm.profile;
  out.block_tokens = realm.block_tokens();
  out.asked = static_cast<uint32_t>(query.tokens.size());
  out.common = hit.common;
  out.missing_from = served;
  if (served + 1 >= out.asked) return;
  const uint32_t rest = out.asked - 1 - served;
  out.missed_ms = static_cast<uint32_t>(realm.ms_per_token * static_cast<float>(rest));
  nearest_end(realm, hit, out);
  const Shortfall& why = hit.plan.shortfall;
  if (limit != Missing::nothing) {
    out.missing = limit;
  } else if (why.reason == ShortReason::max_tokens ||
             (hit.common + 1 >= out.asked && !misses_part(why.reason))) {
    out.missing = Missing::asked_less;
  } else if (misses_part(why.reason)) {
    const PartSpec& spec = realm.groups[why.group].spec;
    const uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
    const bool rows = why.reason == ShortReason::missing_rows;
    const uint32_t position = rows ? why.first * rate : std::max(why.wanted, 1u) - 1;
    if (rows) out.missing_from = std::max(served, position);
    gap(realm, query, hit, position, out);
  } else {
    out.missing_from = std::max(served, hit.common);
    beyond(realm, query, hit, out);
  }
}

}  // namespace kv
