// Coverage of a store, and what its entry consists of.
#include "cachesvc/core/coverage.h"

#include <algorithm>
#include <unordered_set>

#include "cachesvc/core/needs.h"

namespace kv {
namespace {

std::string range(uint32_t first, uint32_t end) {
  return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
}

// Error naming the first part of the missing group, the rows or state expected and those given.
Status coverage_error(const RealmState& realm, const Shortfall& s, uint32_t tokens) {
  const PartGroup& group = realm.groups[s.group];
  std::string at = "layer " + std::to_string(group.members[0].layer) + " part " +
                   std::to_string(group.members[0].part) + " (" + to_string(group.spec.kind) +
                   "): a store of " + std::to_string(tokens) + " tokens, expected ";
  if (s.reason == ShortReason::missing_rows) {
    for (const RowRange& r : demanded_rows(group.spec, tokens)) {
      at += "rows " + range(r.first, r.end) + " ";
    }
    return invalid_argument(at + "given all but " + range(s.first, s.end));
  }
  const char* what = s.reason == ShortReason::missing_carry ? "the carry" : "the snapshot";
  return invalid_argument(at + what + " at " + std::to_string(tokens) + ", given none (" + s.text +
                          ")");
}

// The stored objects that serve a hit.
std::vector<PinnedName> stored_of(const Hit& hit) {
  std::vector<PinnedName> names;
  names.reserve(hit.uses.size());
  for (const Hit::Use& use : hit.uses) names.push_back({use.record->name, use.record->serial});
  return names;
}

}  // namespace

uint32_t find_lost(ObjectIndex& index, const Reservation& r, CommitReply& reply) {
  const uint32_t block = r.realm->block_tokens(), n = r.tokens();
  auto lost = [&](const ObjectName& name) {
    return r.objects.existed.count(name) && !r.objects.finished.count(name) &&
           !index.find_usable(name);
  };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) {
    if (!lost(r.block_name(i))) continue;
    reply.lost.push_back(r.block_name(i));
    return i * block;
  }
  if (r.tail.is_zero() || !lost(r.tail_name())) return n;
  reply.lost.push_back(r.tail_name());
  return n / block * block;
}

Gap check_blocks(ObjectIndex& index, const Reservation& r) {
  const uint32_t tokens = r.tokens(), block = r.realm->block_tokens();
  auto given = [&](const ObjectName& name) {
    return r.objects.finished.count(name) || index.find_usable(name);
  };
  auto wanting = [&](const ObjectName& name, const std::string& what, uint32_t first) {
    return Gap{invalid_argument("store of " + std::to_string(tokens) + " tokens: expected " + what +
                                ", given none"),
               name, first};
  };
  for (uint32_t i = 0; i < r.blocks.size(); ++i) {
    const ObjectName name = r.block_name(i);
    if (given(name)) continue;
    return wanting(
        name, "block " + std::to_string(i) + " (tokens " + range(i * block, (i + 1) * block) + ")",
        i * block);
  }
  const ObjectName tail = r.tail_name();
  uint32_t tail_first = tokens / block * block;
  if (!r.tail.is_zero() && !given(tail)) {
    return wanting(tail, "the tail " + range(tail_first, tokens), tail_first);
  }
  return {};
}

Gap check_coverage(const Reservation& r, std::optional<std::vector<PinnedName>>& serving) {
  const uint32_t tokens = r.tokens();
  const RealmState& realm = *r.realm;
  std::vector<Holding> finished;
  for (const auto& [name, given_object] : r.objects.finished) {
    const RamObject& object = given_object.object;
    Holding like;
    like.place = name.kind == ObjectKind::tail ? HoldingPlace::tail : HoldingPlace::path;
    like.common = object->end_token();
    append_holdings(*realm.groups.shared(), name, object->first_token, object->end_token(), like,
                    finished);
  }
  PlanOptions options{{}, kUnreadableIsMissing, false, &finished};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  options.limits.common = tokens;  // blocks and tail are there, even if they hold no rows
  auto hit = kv::plan(*r.realm, r.query, options);
  if (!hit.ok()) return {hit.status(), r.tail_name(), 0};
  if (hit->plan.tokens == tokens) {
    serving = stored_of(*hit);
    return {};
  }
  const Shortfall& s = hit->plan.shortfall;
  const bool rows = s.reason == ShortReason::missing_rows;
  const uint32_t first = rows ? s.first : tokens, end = rows ? s.end : tokens;
  const Id& id = r.id_of((rows ? first : tokens - 1) / realm.block_tokens());
  ObjectName name{ObjectKind::supplement, id, s.group, first, end};
  return {coverage_error(realm, s, tokens), name, tokens};
}

bool left_out(const Reservation& r) {
  const uint32_t block = r.realm->block_tokens();
  auto gave = [&](const Need& need) {
    if (need.kind == ObjectKind::snapshot) {
      const uint32_t at = need.end_row, first = at / block * block;
      const Id parent = at < block ? Id{} : r.blocks[at / block - 1];
      ObjectName name{ObjectKind::snapshot, {}, 0, 0, 0};
      name.id = snapshot_id(r.realm->realm, parent, tokens_between(r.query, first, at),
                            extras_in(r.query.extras, first, at));
      return std::find(r.objects.given.begin(), r.objects.given.end(), name) !=
             r.objects.given.end();
    }
    std::vector<Holding> held;
    for (const ObjectName& name : r.objects.given) {
      if (name.kind != need.kind || name.group != need.group) continue;
      if (name.kind != ObjectKind::supplement) {
        if (name.id == r.id_of(need.first_row / block)) return true;
        continue;
      }
      if (name.first_row == need.first_row && name.end_row == need.end_row) return true;
      Holding h;
      h.group = name.group;
      h.first = name.first_row;
      h.end = name.end_row;
      h.common = UINT32_MAX;
      held.push_back(h);
    }
    return need.first_row < need.end_row && need.kind == ObjectKind::supplement &&
           missing_rows({need.first_row, need.end_row}, need.group, held).empty();
  };
  return !std::all_of(r.objects.required.begin(), r.objects.required.end(), gave);
}

NamedEnd named_end(const Reservation& r, uint32_t tokens, uint32_t min_tokens) {
  PlanOptions options{{}, kUnreadableIsMissing};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  options.limits.min_tokens = min_tokens;
  auto hit = kv::plan(*r.realm, r.query, options);
  if (!hit.ok()) return {tokens, false, hit.status().message()};
  if (hit->plan.tokens == tokens) return {tokens, true, ""};
  std::string reason = shortfall_of(*r.realm, *hit);
  if (reason.empty()) reason = "only " + std::to_string(hit->common) + " tokens are stored";
  return {tokens, false, std::move(reason)};
}

std::vector<PinnedName> serving(const Reservation& r, uint32_t tokens) {
  PlanOptions options{{}, kUnreadableIsMissing};
  options.limits.query_tokens = tokens + 1;
  options.limits.max_tokens = tokens;
  auto hit = kv::plan(*r.realm, r.query, options);
  return hit.ok() ? stored_of(*hit) : std::vector<PinnedName>();
}

std::vector<PinnedName> path_of(ObjectIndex& index, const Reservation& r,
                                const std::vector<PinnedName>& serving) {
  std::vector<PinnedName> path;
  std::unordered_set<const Record*> seen;
  auto add = [&](const Record* record) {
    if (record && seen.insert(record).second) path.push_back({record->name, record->serial});
  };
  for (const Id& id : r.blocks) add(index.find(ObjectName{ObjectKind::block, id, 0, 0, 0}));
  if (!r.tail.is_zero()) add(index.find(r.tail_name()));
  for (const PinnedName& name : serving) add(index.find(name));
  for (const auto& [name, object] : r.objects.finished) add(index.find(name));
  return path;
}

}  // namespace kv
