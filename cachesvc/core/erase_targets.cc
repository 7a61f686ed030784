// The three kinds of erase, each with its search for objects.
#include "cachesvc/core/erase_targets.h"

#include <algorithm>
#include <utility>

#include "cachesvc/core/needs.h"
#include "cachesvc/core/orphan_match.h"
#include "cachesvc/core/paths.h"

namespace kv {
namespace {

constexpr size_t kScannedAtATime = 256;  // orphans of one call that may be no targets

// Adds objects of the realm whose nodes begin with the query, until there are `most`; for an empty
// query also those that hang on the root.
void add_of_tree(const RealmState& realm, const Query& query, size_t most,
                 std::vector<Record*>& out) {
  if (out.size() >= most) return;
  auto nodes = realm.tree.beginning_with(query.tokens, query.extras, most - out.size());
  if (!nodes.ok()) return;  // checked when the erase began
  if (query.tokens.empty()) nodes->push_back(kRootNode);
  for (NodeId id : *nodes) realm.nodes.at(id).list(most, out);
}

// Adds snapshots that begin with the query, after the last block that it matches wholly.
void add_snapshots(const RealmState& realm, const Query& query, size_t most,
                   std::vector<Record*>& out) {
  if (query.tokens.empty()) return;  // the root's are the tree's
  const auto n = static_cast<uint32_t>(query.tokens.size());
  const uint32_t whole = n - n % realm.block_tokens();
  const auto path =
      realm.tree.find_path(tokens_between(query, 0, whole), extras_in(query.extras, 0, whole));
  const NodeId last = path.empty() ? kRootNode : path.back();
  const Symbols rest = symbols_from(query, realm.tree.end_token(last));
  realm.nodes.at(last).attached.snapshots_beginning_with(rest, most, out);
}

class OfNamespace : public EraseTargets {
 public:
  OfNamespace(ObjectIndex& index, std::string ns) : index_(index), ns_(std::move(ns)) {}
  std::vector<Record*> next(size_t most) override {
    std::vector<Record*> out = index_.orphans().of(ns_, most);
    for (const auto& realm : index_.realms().all()) {
      if (realm->realm.ns == ns_) add_of_tree(*realm, {}, most, out);
    }
    done_ = out.empty();
    return out;
  }

 private:
  ObjectIndex& index_;
  const std::string ns_;
};

// Orphans, then realm by realm the nodes, and the snapshots after the last block that the query
// matches wholly: they belong to entries too.
class BeginningWith : public EraseTargets {
 public:
  BeginningWith(ObjectIndex& index, const ModelState& model, Query query)
      : index_(index),
        ns_(model.ns),
        fingerprint_(model.spec->fingerprint),
        query_(std::move(query)),
        orphan_match_(index, query_) {}

  std::vector<Record*> next(size_t most) override {
    std::vector<Record*> out;
    if (!orphans_done_) {
      add_orphans(most, out);
      return out;
    }
    for (const auto& realm : index_.realms().of(ns_, fingerprint_)) {
      if (realm->index < realm_) continue;
      realm_ = realm->index;
      add_of_tree(*realm, query_, most, out);
      if (out.empty()) add_snapshots(*realm, query_, most, out);
      if (!out.empty()) return out;
    }
    done_ = true;
    return out;
  }

 private:
  void add_orphans(size_t most, std::vector<Record*>& out) {
    const auto looked_at = index_.orphans().of(ns_, fingerprint_, last_orphan_, kScannedAtATime);
    for (Record* r : looked_at) {
      if (out.size() == most) return;
      last_orphan_ = r->key;
      if (orphan_match_.may_begin(*r->orphan)) out.push_back(r);
    }
    orphans_done_ = looked_at.size() < kScannedAtATime;
  }

  ObjectIndex& index_;
  const std::string ns_;
  const Id fingerprint_;
  const Query query_;
  OrphanMatch orphan_match_;
  EntryKey last_orphan_ = 0;
  bool orphans_done_ = false;
  uint64_t realm_ = 0;  // RealmState::index of the one that is looked at
};

class OfEntry : public EraseTargets {
 public:
  OfEntry(ObjectIndex& index, std::vector<PinnedName> targets)
      : index_(index), targets_(std::move(targets)) {}
  std::vector<Record*> next(size_t most) override {
    std::vector<Record*> out;
    for (; next_ < targets_.size() && out.size() < most; ++next_) {
      if (Record* r = index_.find(targets_[next_])) out.push_back(r);  // null: evicted meanwhile
    }
    done_ = next_ == targets_.size();
    return out;
  }

 private:
  ObjectIndex& index_;
  std::vector<PinnedName> targets_;
  size_t next_ = 0;
};

// Walk over an entry in one realm, from its end upwards, until another entry goes on or ends. Tails
// and snapshots that only the query goes on from are its earlier turns.
class EntryWalk {
 public:
  EntryWalk(const RealmState& realm, const Query& query)
      : realm_(realm),
        tree_(realm.tree),
        query_(query),
        n_(static_cast<uint32_t>(query.tokens.size())) {}

  /// Adds the entry's objects, if it is stored. `end`: the last block that the query matches
  /// wholly, or the root.
  void add(NodeId end, std::vector<Record*>& out) {
    look_at(end, kNoNode);
    if (!ends_here()) return;
    while (add_own(out)) look_at(tree_.parent(at_), at_);
  }

 private:
  void look_at(NodeId node, NodeId below) {
    at_ = node;
    below_ = below;
    const Symbols rest = symbols_from(query_, tree_.end_token(node));
    tails_ = tree_.whole_tails(node, rest.tokens, rest.extras);
    snapshots_ = realm_.nodes.at(node).attached.snapshots_on(rest);
  }

  bool ends_here() const {
    return tree_.end_token(at_) == n_ ||
           std::any_of(tails_.begin(), tails_.end(),
                       [&](NodeId tail) { return tree_.end_token(tail) == n_; }) ||
           std::any_of(snapshots_.begin(), snapshots_.end(),
                       [&](const Record* r) { return r->attachment->position == n_; });
  }

  // True if another entry goes on from here with these tokens. The query's own are few.
  bool others_go_on(std::span<const Token> tokens, std::span<const Extra> extras) const {
    bool found = false;
    tree_.visit_children(at_, tokens, extras, [&](NodeId child) {
      found = child != below_ && std::find(tails_.begin(), tails_.end(), child) == tails_.end();
      return !found;
    });
    return found;
  }

  void take(NodeId node, std::vector<Record*>& out) const {
    realm_.nodes.at(node).list(SIZE_MAX, out);
  }

  // Adds the entry's own objects at this node. Returns: true if all are its own, and the node goes.
  bool add_own(std::vector<Record*>& out) const {
    for (NodeId tail : tails_) {
      const std::vector<Token> tokens = tree_.tokens(tail).all();
      const bool last = tree_.end_token(tail) == n_;
      if (last || !others_go_on(tokens, tree_.extras(tail))) take(tail, out);
    }
    const bool all_own = snapshots_.size() == realm_.nodes.at(at_).attached.snapshots();
    const size_t own_children = tails_.size() + (below_ != kNoNode);
    if (tree_.child_count(at_) == own_children && all_own && at_ != kRootNode) {
      take(at_, out);
      return true;
    }
    for (Record* r : snapshots_) {
      const bool last = r->attachment->position == n_;
      if (last || !others_go_on(r->attachment->tokens, r->attachment->extras)) out.push_back(r);
    }
    return false;
  }

  const RealmState& realm_;
  const PrefixTree& tree_;
  const Query& query_;
  const uint32_t n_;
  NodeId at_ = kRootNode, below_ = kNoNode;
  // Objects after the node; the query goes on from them, or ends with one.
  std::vector<NodeId> tails_;
  std::vector<Record*> snapshots_;
};

// The entry that ends with the query's last token, with what no other entry has.
Result<std::vector<Record*>> entry_now(ObjectIndex& index, const ModelState& model,
                                       const Query& query) {
  std::vector<Record*> targets;
  for (const auto& realm : index.realms().of(model.ns, model.spec->fingerprint)) {
    KV_ASSIGN_OR_RETURN(auto match, realm->tree.match(query.tokens, query.extras));
    const NodeId end = match.path.empty() ? kRootNode : match.path.back();
    EntryWalk(*realm, query).add(end, targets);
  }
  return targets;
}

}  // namespace

std::unique_ptr<EraseTargets> EraseTargets::of_namespace(ObjectIndex& index, std::string ns) {
  return std::make_unique<OfNamespace>(index, std::move(ns));
}

Result<std::unique_ptr<EraseTargets>> EraseTargets::beginning_with(ObjectIndex& index,
                                                                   const ModelState& model,
                                                                   Query query) {
  for (const auto& realm : index.realms().of(model.ns, model.spec->fingerprint)) {
    KV_RETURN_IF_ERROR(realm->tree.beginning_with(query.tokens, query.extras, 0).status());
  }
  return std::unique_ptr<EraseTargets>(
      std::make_unique<BeginningWith>(index, model, std::move(query)));
}

Result<std::unique_ptr<EraseTargets>> EraseTargets::of_entry(ObjectIndex& index,
                                                             const ModelState& model,
                                                             const Query& query) {
  KV_ASSIGN_OR_RETURN(auto targets, entry_now(index, model, query));
  std::vector<PinnedName> names;
  for (const Record* r : targets) names.push_back({r->name, r->serial});
  return of_names(index, std::move(names));
}

std::unique_ptr<EraseTargets> EraseTargets::of_names(ObjectIndex& index,
                                                     std::vector<PinnedName> names) {
  return std::make_unique<OfEntry>(index, std::move(names));
}

Result<std::vector<Record*>> EraseTargets::found_now(ObjectIndex& index, const ModelState& model,
                                                     const Query& query, bool whole, size_t most) {
  if (!whole) return entry_now(index, model, query);
  std::vector<Record*> found;
  OrphanMatch orphans(index, query);
  EntryKey last = 0;
  for (bool more = true; more && found.size() <= most;) {
    const auto some = index.orphans().of(model.ns, model.spec->fingerprint, last, kScannedAtATime);
    for (Record* r : some) {
      last = r->key;
      if (orphans.may_begin(*r->orphan)) found.push_back(r);
    }
    more = some.size() == kScannedAtATime;
  }
  for (const auto& realm : index.realms().of(model.ns, model.spec->fingerprint)) {
    KV_RETURN_IF_ERROR(realm->tree.beginning_with(query.tokens, query.extras, 0).status());
    add_of_tree(*realm, query, most + 1, found);
    add_snapshots(*realm, query, most + 1, found);
  }
  return found;
}

}  // namespace kv
