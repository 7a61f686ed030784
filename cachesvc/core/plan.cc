// From a query to what serves it: tree match, holdings, restorable(n).
#include <algorithm>
#include <map>

#include "cachesvc/core/object_index.h"

namespace kv {
namespace {

// True if the object is in a tier that may be used now.
bool usable(const Record& r, const ObjectIndex::PlanOptions& options) {
  return r.ram || (!options.ram_only && r.usable(options.now));
}

struct Gather {
  RealmState& realm;
  const ObjectIndex::PlanOptions& options;
  Candidates& out;

  void add(Record& r, HoldingPlace place, uint32_t common) {
    if (!usable(r, options)) return;
    Holding like;
    out.records.push_back(&r);
    like.object = out.records.size();
    like.place = place;
    like.common = common;
    like.tier = r.ram ? Tier::ram : Tier::ssd;
    uint32_t first = 0, end = 0;
    if (r.name.kind == ObjectKind::snapshot) {
      end = r.attachment->position;
      like.form = end % realm.block_tokens() ? HitForm::exact_tail : HitForm::coded;
    } else {
      first = realm.tree.first_token(r.node);
      end = realm.tree.end_token(r.node);
      like.form = realm.tree.is_tail(r.node) ? HitForm::exact_tail : HitForm::coded;
    }
    append_holdings(realm, r.name, first, end, like, out.holdings);
  }
  void add_node(NodeId node, HoldingPlace place, uint32_t common) {
    RealmState::Node& n = realm.nodes.at(node);
    if (n.main) add(*n.main, place, common);
    for (Record* r : n.attached) {
      if (r->name.kind == ObjectKind::supplement) add(*r, place, common);
    }
  }
};

}  // namespace

namespace {

// Where tokens and extras from position `first` on part from the query's; what is before it is the
// same. At most the end of either.
template <typename Tokens>  // a span or a TokenRun
uint32_t common_until(uint32_t first, const Tokens& tokens, std::span<const Extra> extras,
                      const Query& query) {
  uint32_t end = first + static_cast<uint32_t>(tokens.size()), at = first;
  while (at < end && at < query.tokens.size() && tokens[at - first] == query.tokens[at]) ++at;
  // The first position at which the two lists of extras differ cuts the common prefix.
  auto own = extras.begin();
  auto its = std::lower_bound(query.extras.begin(), query.extras.end(), first,
                              [](const Extra& e, uint32_t p) { return e.position < p; });
  for (; own != extras.end() || its != query.extras.end(); ++own, ++its) {
    uint32_t a = own != extras.end() ? own->position : UINT32_MAX;
    uint32_t b = its != query.extras.end() ? its->position : UINT32_MAX;
    if (std::min(a, b) >= at) break;
    if (a == b && *own == *its) continue;
    return std::min(a, b);
  }
  return at;
}

}  // namespace

uint32_t snapshot_common(const Record& r, const Query& query) {
  return common_until(r.attachment->position - static_cast<uint32_t>(r.attachment->tokens.size()),
                      r.attachment->tokens, r.attachment->extras, query);
}

// Up to the first block that is the query's own: its id stands for everything before its end.
uint32_t ObjectIndex::common_with(const Record& record, const Query& query,
                                  std::span<const Id> blocks) const {
  const RealmState& realm = *record.realm;
  const uint32_t block = realm.block_tokens();
  auto is_the_querys = [&](NodeId node) {
    size_t index = realm.tree.first_token(node) / block;
    return index < blocks.size() && realm.nodes.at(node).id == blocks[index];
  };
  NodeId at = record.node, below = kNoNode;
  for (; at != kRootNode && !is_the_querys(at); at = realm.tree.parent(at)) below = at;
  if (below == kNoNode) return realm.tree.end_token(at);
  return common_until(realm.tree.first_token(below), realm.tree.tokens(below),
                      realm.tree.extras(below), query);
}

void append_holdings(const RealmState& realm, const ObjectName& name, uint32_t first_token,
                     uint32_t end_token, const Holding& like, std::vector<Holding>& out) {
  Holding h = like;
  h.end_token = end_token;
  if (name.kind == ObjectKind::supplement) {
    const PartSpec& spec = realm.groups[name.group].spec;
    h.group = name.group;
    h.first = name.first_row;
    h.end = name.end_row;
    bool rows = spec.has_rows() && spec.kind != PartKind::pooled;
    h.kind = rows                            ? HoldingKind::rows
             : spec.kind == PartKind::pooled ? HoldingKind::carry
                                             : HoldingKind::snapshot;
    out.push_back(h);
    return;
  }
  for (size_t g = 0; g < realm.groups.size(); ++g) {
    const PartSpec& spec = realm.groups[g].spec;
    h.group = static_cast<uint16_t>(g);
    if (name.kind == ObjectKind::snapshot) {
      if (spec.has_rows() || spec.snapshot != SnapshotPlace::checkpoint) continue;
      h.kind = HoldingKind::snapshot;
      h.end = end_token;
    } else {
      if (!spec.has_rows() || !spec.rows_in_block()) continue;
      uint32_t rate = spec.kind == PartKind::pooled ? spec.rate : 1;
      h.kind = HoldingKind::rows;
      h.first = first_token / rate;
      h.end = end_token / rate;
    }
    out.push_back(h);
  }
}

Result<Candidates> ObjectIndex::candidates(RealmState& realm, const Query& query,
                                           const PlanOptions& options) {
  Candidates out;
  KV_ASSIGN_OR_RETURN(out.match, realm.tree.match(query.tokens, query.extras));
  out.common = out.match.common;
  Gather gather{realm, options, out};
  auto add_snapshots = [&](NodeId node) {
    for (Record* r : realm.nodes.at(node).attached) {
      if (r->name.kind != ObjectKind::snapshot) continue;
      uint32_t common = snapshot_common(*r, query);
      if (usable(*r, options)) out.common = std::max(out.common, common);
      gather.add(*r, HoldingPlace::path, common);
    }
  };
  add_snapshots(kRootNode);
  for (NodeId node : out.match.path) {
    gather.add_node(node, HoldingPlace::path, realm.tree.end_token(node));
    add_snapshots(node);
  }
  for (const SideCandidate& c : out.match.candidates) {
    bool tail = realm.tree.is_tail(c.node);
    gather.add_node(c.node, tail ? HoldingPlace::tail : HoldingPlace::other, c.common);
  }
  return out;
}

Result<Hit> ObjectIndex::plan(RealmState& realm, const Query& query, const PlanOptions& options) {
  KV_ASSIGN_OR_RETURN(Candidates held, candidates(realm, query, options));
  Hit hit;
  hit.match = std::move(held.match);
  hit.common = std::max(held.common, options.limits.common);
  if (options.more) {
    for (const Holding& h : *options.more) {
      held.holdings.push_back(h);
      hit.common = std::max(hit.common, h.common);
    }
  }
  RestorableQuery limits = options.limits;
  limits.block_tokens = realm.block_tokens();
  limits.common = hit.common;
  hit.plan = plan_restore(realm.groups, limits, held.holdings);
  std::map<Record*, uint32_t> ends;
  for (const Served& s : hit.plan.served) {
    const Holding& h = held.holdings[s.holding];
    if (Record* r = held.record_of(h))
      ends[r] = std::max(ends[r], std::min(h.common, hit.plan.tokens));
  }
  for (auto& [record, end] : ends) hit.uses.push_back({record, end});
  auto order = [](const Hit::Use& u) {
    const Record& r = *u.record;
    uint32_t at = r.name.kind == ObjectKind::snapshot ? r.attachment->position
                                                      : r.realm->tree.first_token(r.node);
    return std::tuple(static_cast<int>(r.name.kind), at, r.name);
  };
  std::sort(hit.uses.begin(), hit.uses.end(),
            [&](const Hit::Use& a, const Hit::Use& b) { return order(a) < order(b); });
  return hit;
}

}  // namespace kv
