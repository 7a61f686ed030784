// Steps from a query to what serves it: tree match, holdings, restorable(n).
#include "cachesvc/core/plan.h"

#include <algorithm>

namespace kv {
namespace {

// True if the object is in a tier that may be used now.
bool usable(const Record& r, const PlanOptions& options) {
  return r.ram || (!options.ram_only && r.usable(options.now));
}

struct Gather {
  RealmState& realm;
  const PlanOptions& options;
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
    append_holdings(*realm.groups.shared(), r.name, first, end, like, out.holdings);
  }
  void add_node(NodeId node, HoldingPlace place, uint32_t common) {
    RealmState::Node& n = realm.nodes.at(node);
    if (n.main) add(*n.main, place, common);
    for (Record* r : n.attached.supplements()) add(*r, place, common);
  }
  void add_snapshots(NodeId node, const Query& query) {
    const Attached& attached = realm.nodes.at(node).attached;
    if (attached.snapshots() == 0) return;
    const uint32_t first = realm.tree.end_token(node);
    const Symbols rest = symbols_from(query, first);
    out.common = std::max(out.common, first + attached.longest_common(rest));
    for (Record* r : attached.snapshots_on(rest)) {
      add(*r, HoldingPlace::path, r->attachment->position);
    }
  }
};

}  // namespace

Result<Candidates> candidates(RealmState& realm, const Query& query, const PlanOptions& options) {
  Candidates out;
  KV_ASSIGN_OR_RETURN(out.match, realm.tree.match(query.tokens, query.extras));
  out.common = out.match.common;
  Gather gather{realm, options, out};
  gather.add_snapshots(kRootNode, query);
  for (NodeId node : out.match.path) {
    gather.add_node(node, HoldingPlace::path, realm.tree.end_token(node));
    gather.add_snapshots(node, query);
  }
  for (const SideCandidate& c : out.match.candidates) {
    bool tail = realm.tree.is_tail(c.node);
    gather.add_node(c.node, tail ? HoldingPlace::tail : HoldingPlace::other, c.common);
  }
  return out;
}

namespace {

// The objects that serve a plan, each once, with the last token of the query that it serves.
std::vector<Hit::Use> uses_of(const Candidates& held, const RestorePlan& plan) {
  std::vector<uint32_t> ends(held.records.size());  // 0: serves nothing
  for (const Served& s : plan.served) {
    const Holding& h = held.holdings[s.holding];
    if (h.object == 0) continue;
    uint32_t& end = ends[h.object - 1];
    end = std::max(end, std::min(h.common, plan.tokens));
  }
  struct Ordered {
    ObjectKind kind;
    uint32_t first;
    Hit::Use use;
  };
  std::vector<Ordered> ordered;
  ordered.reserve(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] == 0) continue;
    Record* r = held.records[i];
    const bool snapshot = r->name.kind == ObjectKind::snapshot;
    const uint32_t first = snapshot ? r->attachment->position : r->realm->tree.first_token(r->node);
    ordered.push_back({r->name.kind, first, {r, ends[i]}});
  }
  std::sort(ordered.begin(), ordered.end(), [](const Ordered& a, const Ordered& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    return a.first != b.first ? a.first < b.first : a.use.record->name < b.use.record->name;
  });
  std::vector<Hit::Use> uses;
  uses.reserve(ordered.size());
  for (const Ordered& o : ordered) uses.push_back(o.use);
  return uses;
}

}  // namespace

PlanOptions plan_options(const Env& env, const Query& query) {
  PlanOptions options{{}, Clock::now()};
  options.limits.query_tokens = static_cast<uint32_t>(query.tokens.size());
  options.limits.min_tokens = env.options.min_prefix_tokens;
  return options;
}

Result<Hit> plan(RealmState& realm, const Query& query, const PlanOptions& options) {
  KV_ASSIGN_OR_RETURN(Candidates held, candidates(realm, query, options));
  Hit hit;
  hit.match = std::move(held.match);
  hit.common = std::max(held.common, options.limits.common);
  const size_t stored = held.holdings.size();
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
  hit.uses = uses_of(held, hit.plan);
  for (const Served& s : hit.plan.served) {
    if (s.holding >= stored) hit.more_used.push_back(s.holding - stored);
  }
  return hit;
}

uint32_t shorter(const RealmState& realm, const Hit& hit, uint64_t needed, uint64_t bytes,
                 const std::function<uint64_t(const Record&)>& cost) {
  uint32_t end = hit.plan.tokens;
  for (auto u = hit.uses.rbegin(); u != hit.uses.rend() && needed > bytes; ++u) {
    const Record& r = *u->record;
    if (!is_main(r.name.kind)) continue;
    needed -= cost(r);
    end = std::min(end, realm.tree.first_token(r.node));
  }
  if (end < hit.plan.tokens) return end;
  const uint32_t block = realm.block_tokens();  // no block went: the next state before
  return end == 0 ? 0 : (end - 1) / block * block;
}

std::string shortfall_of(const RealmState& realm, const Hit& hit) {
  std::string text = hit.plan.shortfall.text;
  if (hit.plan.tokens > 0 || !realm.others_lost) return text;
  return text + (text.empty() ? "" : "; ") +
         "of this model there are objects that serve nothing: the profile that they were stored "
         "under, or their model record, is lost";
}

}  // namespace kv
