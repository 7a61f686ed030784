// Records, their nodes and their places in the two eviction orders.
#include "cachesvc/core/object_index.h"

#include <algorithm>

namespace kv {

std::vector<Id> ObjectIndex::release_realms() {
  std::vector<Id> profiles = realms_.release();
  std::erase_if(profiles, [this](const Id& id) { return names_profile(id); });
  return profiles;
}

bool ObjectIndex::names_profile(const Id& id) const {
  return realms_.names_profile(id) || orphans_.names_profile(id);
}

Record* ObjectIndex::find(const ObjectName& name) { return by_name_.find(name); }

const Record* ObjectIndex::find(const ObjectName& name) const { return by_name_.find(name); }

Record* ObjectIndex::find(const PinnedName& pinned) {
  Record* r = find(pinned.name);
  return r && r->serial == pinned.serial ? r : nullptr;
}

Record* ObjectIndex::find_usable(const ObjectName& name) {
  Record* r = find(name);
  return r && r->realm && r->usable(kUnreadableIsMissing) ? r : nullptr;
}

Record* ObjectIndex::find_key(EntryKey key) {
  if ((key & kAttached) != 0) {
    auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  RealmState* realm = realms_.by_number(key >> 32);
  auto node = static_cast<NodeId>(key);
  return realm && node < realm->nodes.size() ? realm->nodes[node].main : nullptr;
}

NodeId ObjectIndex::owner_node(RealmState& realm, const Object& object) {
  NodeId parent = kRootNode;
  if (!object.parent.is_zero()) {
    const NodeId* known = realm.node_of.find(object.parent);
    if (!known) return kNoNode;
    parent = *known;
  }
  // A parent block ends where its child begins: a file that says otherwise is no child of it.
  if (realm.tree.end_token(parent) != object.first_token) return kNoNode;
  if (object.name.kind == ObjectKind::snapshot) {  // Attached orders it by what is checked here
    return realm.tree.check_part(parent, object.tokens, object.extras).ok() ? parent : kNoNode;
  }
  auto inserted = realm.tree.find_or_insert(parent, object.tokens, object.extras);
  if (!inserted.ok()) return kNoNode;
  NodeId node = inserted->node;
  if (!inserted->is_new) return node;
  if (realm.nodes.size() <= node) realm.nodes.resize(node + 1);
  realm.node_of[object.name.id] = node;
  realm.nodes[node].id = object.name.id;
  return node;
}

Record* ObjectIndex::add(RealmState& realm, const Object& object, Charge&& index_charge) {
  Record* known = find(object.name);  // a record or an orphan
  if (known && known->realm) return known;
  bool supplement = object.name.kind == ObjectKind::supplement;
  if (supplement && object.name.group >= realm.groups.size()) return nullptr;
  NodeId node = owner_node(realm, object);
  if (node == kNoNode) return nullptr;
  Record& r = known ? *known : by_name_[object.name];
  r.name = object.name;
  r.share = realm.share;
  EntryKey before = link(r, realm, node, object);
  if (known) {  // an orphan whose parent is back
    tiers_.key_changed(r, before);
    forget_orphan(r, before);
  }
  r.serial = next_serial_++;
  r.index_charge = std::move(index_charge);
  return &r;
}

void ObjectIndex::expect(size_t objects) {
  by_name_.expect(objects);
  tiers_.ssd().expect(objects);
  for (auto& r : realms_.all()) {  // an equal share for each
    r->node_of.expect(objects / realms_.all().size());
  }
}

// Gives the record a place in the tree, and a new key. Returns: its key until now.
EntryKey ObjectIndex::link(Record& r, RealmState& realm, NodeId node, const Object& object) {
  RealmState::Node& n = realm.nodes[node];
  std::unique_ptr<Attachment> attachment;
  if (!is_main(r.name.kind)) attachment = std::make_unique<Attachment>();
  if (r.name.kind == ObjectKind::snapshot) {
    attachment->tokens = object.tokens;
    attachment->extras = object.extras;
    attachment->position = object.end_token();
  }
  EntryKey key = is_main(r.name.kind) ? node_key(realm, node) : attached_key(next_serial_++);
  if (is_main(r.name.kind)) {
    n.main = &r;
  } else {
    by_key_.emplace(key, &r);
    r.attachment = std::move(attachment);
    n.attached.add(r);
  }
  r.realm = &realm;
  r.node = node;
  return std::exchange(r.key, key);
}

void ObjectIndex::unlink(Record& record) {
  RealmState& realm = *std::exchange(record.realm, nullptr);
  RealmState::Node& node = realm.nodes[record.node];
  if (is_main(record.name.kind)) {
    node.main = nullptr;
  } else {
    node.attached.remove(record);
  }
  by_key_.erase(record.key);
  prune(realm, record.node);
}

void ObjectIndex::remove(Record& record) {
  tiers_.forget(record);
  if (record.orphan) forget_orphan(record, record.key);
  if (record.realm) unlink(record);
  by_name_.erase(ObjectName(record.name));  // a copy: the key lives inside what is erased
}

// Removes a node that nothing hangs on; the tree removes hollow ancestors without another child
// with it.
void ObjectIndex::prune(RealmState& realm, NodeId node) {
  const RealmState::Node& n = realm.nodes[node];
  const PrefixTree& tree = realm.tree;
  if (node == kRootNode || n.main || !n.attached.empty()) return;
  if (tree.child_count(node) == 0) {
    NodeId at = node;
    do {
      realm.node_of.erase(realm.nodes[at].id);
      realm.nodes[at] = {};
      at = tree.parent(at);
    } while (at != kRootNode && tree.is_hollow(at) && tree.child_count(at) == 1);
  }
  realm.tree.erase(node);
}

NodeId ObjectIndex::reorder(const RealmState& realm, NodeId first, size_t most) {
  const size_t end = std::min<size_t>(realm.nodes.size(), first + most);
  for (NodeId node = first; node < end; ++node) {
    std::vector<Record*> own;
    realm.nodes[node].list(SIZE_MAX, own);
    for (Record* record : own) tiers_.reorder(*record);
  }
  return end < realm.nodes.size() ? static_cast<NodeId>(end) : kNoNode;
}

void ObjectIndex::check_invariants() {
  std::vector<uint64_t> ram(tiers_.ram().count()), ssd(tiers_.ssd().count());
  by_name_.for_each([&](const ObjectName&, const Record& record) {
    const std::string& ns = record.realm ? record.realm->realm.ns : record.orphan->header.ns;
    KV_CHECK(record.share == namespaces_.share(ns));
    ram[record.share] += tiers_.ram_of(record).charge_bytes(record.key);
    ssd[record.share] += tiers_.ssd_of(record).charge_bytes(record.key);
  });
  for (ShareId share = 0; share < ram.size(); ++share) {
    KV_CHECK(ram[share] == tiers_.ram().bytes(share) && ssd[share] == tiers_.ssd().bytes(share));
  }
  tiers_.ram().check_invariants();
  tiers_.ssd().check_invariants();
}

}  // namespace kv
