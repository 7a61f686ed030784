// Orphans: objects on the SSD whose parent block, model or profile is missing. They serve nothing;
// they are linked when what they lack returns, and erased when they may belong to what is erased.
#include <algorithm>

#include "cachesvc/core/object_index.h"

namespace kv {
namespace {

// True if tokens and extras from position `first` on are the query's, as far as both go.
bool agrees(std::span<const Token> tokens, std::span<const Extra> extras, uint32_t first,
            const Query& query) {
  auto n = static_cast<uint32_t>(query.tokens.size());
  if (first >= n) return true;
  uint32_t end = std::min(n, first + static_cast<uint32_t>(tokens.size()));
  auto own = extras_in(extras, first, end), given = extras_in(query.extras, first, end);
  return std::equal(tokens.begin(), tokens.begin() + (end - first), query.tokens.begin() + first) &&
         std::equal(own.begin(), own.end(), given.begin(), given.end());
}

}  // namespace

// One query against many orphans; the ids of the query's blocks are made once for each realm.
class ObjectIndex::OrphanMatch {
 public:
  OrphanMatch(ObjectIndex& index, const Query& query) : index_(index), query_(query) {}

  bool may_begin(const Orphan& orphan) {
    auto n = static_cast<uint32_t>(query_.tokens.size());
    if (n == 0) return true;
    if (orphan.header.end_token() < n) return false;
    // Up from orphan to orphan, until something decides.
    for (const Orphan* at = &orphan; at;) {
      const Object& o = at->header;
      if (!agrees(o.tokens, o.extras, o.first_token, query_)) return false;
      if (o.first_token == 0) return true;
      if (RealmState* realm = index_.find_realm({o.ns, o.fingerprint, o.profile})) {
        auto node = realm->node_of.find(o.parent);
        if (node != realm->node_of.end()) return node_begins(*realm, node->second);
        bool ends_above = o.first_token <= n && o.first_token % realm->block_tokens() == 0;
        if (ends_above) return id_at(*realm, o.first_token) == o.parent;
      }
      Record* parent = index_.find(ObjectName{ObjectKind::block, o.parent, 0, 0, 0});
      at = parent ? parent->orphan.get() : nullptr;
    }
    return true;
  }

 private:
  bool node_begins(const RealmState& realm, NodeId node) const {
    for (; node != kRootNode; node = realm.tree.parent(node)) {
      uint32_t first = realm.tree.first_token(node);
      const std::vector<Token> tokens = realm.tree.tokens(node).all();
      if (!agrees(tokens, realm.tree.extras(node), first, query_)) return false;
    }
    return true;
  }

  // The id of the query's block that ends at `end`.
  const Id& id_at(const RealmState& realm, uint32_t end) {
    std::vector<Id>& ids = ids_[&realm];
    uint32_t block = realm.block_tokens();
    while (ids.size() < end / block) {
      auto first = static_cast<uint32_t>(ids.size()) * block;
      std::span<const Token> tokens(query_.tokens.data() + first, block);
      ids.push_back(block_id(realm.realm, ids.empty() ? Id{} : ids.back(), tokens,
                             extras_in(query_.extras, first, first + block), ObjectKind::block));
    }
    return ids[end / block - 1];
  }

  ObjectIndex& index_;
  const Query& query_;
  std::map<const RealmState*, std::vector<Id>> ids_;
};

bool ObjectIndex::has_orphans(const std::string& ns, const Id& fingerprint, const Id& but) const {
  return std::any_of(orphans_.begin(), orphans_.end(), [&](const auto& o) {
    const Object& header = o.second->orphan->header;
    return header.ns == ns && header.fingerprint == fingerprint && header.profile != but;
  });
}

std::vector<Record*> ObjectIndex::orphans_beginning_with(const std::string& ns,
                                                         const Id& fingerprint,
                                                         const Query& query) {
  std::vector<Record*> out;
  OrphanMatch match(*this, query);
  for (auto& [parent, record] : orphans_) {
    const Object& o = record->orphan->header;
    if (o.ns != ns || o.fingerprint != fingerprint) continue;
    if (match.may_begin(*record->orphan)) out.push_back(record);
  }
  return out;
}

void ObjectIndex::forget_orphan(Record& record, EntryKey key) {
  auto [it, end] = orphans_.equal_range(record.orphan->header.parent);
  while (it != end && it->second != &record) ++it;
  KV_CHECK(it != end);
  orphans_.erase(it);
  by_key_.erase(key);
  record.orphan.reset();
}

// Its record stays the same one, so that whoever knows it by its serial still does; its key and
// with it its place in the SSD's order are new.
bool ObjectIndex::link_orphan(Record& record, RealmState& realm) {
  const Object& o = record.orphan->header;
  bool ours = realm.realm == Realm{o.ns, o.fingerprint, o.profile};
  bool supplement = o.name.kind == ObjectKind::supplement;
  if (!ours || (supplement && o.name.group >= realm.groups.size())) {
    return false;
  }
  NodeId node = owner_node(realm, o);
  if (node == kNoNode) return false;
  EntryKey before = link(record, realm, node, o);
  settle_orphan(record, before);
  return true;
}

// Linked by now: its place in the SSD's order goes over from the key that it had before.
void ObjectIndex::settle_orphan(Record& record, EntryKey before) {
  EntryOptions options = entry_options(record, ssd_.charge_bytes(before));
  options.recency = ssd_.recency(before);
  ssd_.insert(record.key, options);
  forget_orphan(record, before);
  KV_CHECK(record.pins == 0 && ssd_.erase(before));
}

void ObjectIndex::relink(RealmState& realm, const Id& parent) {
  if (orphans_.empty()) return;
  std::vector<Id> parents{parent};
  while (!parents.empty() && !orphans_.empty()) {
    auto [it, end] = orphans_.equal_range(parents.back());
    parents.pop_back();
    std::vector<Record*> children;
    for (; it != end; ++it) children.push_back(it->second);
    for (Record* child : children) {
      if (link_orphan(*child, realm) && child->name.kind != ObjectKind::snapshot) {
        parents.push_back(child->name.id);
      }
    }
  }
}

}  // namespace kv
