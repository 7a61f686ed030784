// Orphans in the index, and their way back to a tree.
#include "cachesvc/core/object_index.h"

namespace kv {

Record* ObjectIndex::add_orphan(const Object& object, Charge index_charge) {
  if (find(object.name)) return nullptr;
  auto orphan = std::make_unique<Orphan>();
  orphan->header = object;
  Record& r = by_name_[object.name];
  r.name = object.name;
  r.share = namespaces_.share(object.ns);
  r.serial = next_serial_++;
  r.key = attached_key(r.serial);
  by_key_.emplace(r.key, &r);
  r.orphan = std::move(orphan);
  orphans_.add(r);
  r.index_charge = std::move(index_charge);
  return &r;
}

void ObjectIndex::forget_orphan(Record& record, EntryKey key) {
  orphans_.forget(record, key);
  by_key_.erase(key);
  record.orphan.reset();
}

// The orphan's record and serial stay, so PinnedNames of it stay valid; its key and with it its
// place in the SSD's order are new.
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
  tiers_.key_changed(record, before);
  forget_orphan(record, before);
  return true;
}

void ObjectIndex::relink(RealmState& realm, const Id& parent) {
  std::vector<Id> parents{parent};
  while (!parents.empty() && !orphans_.empty()) {
    const std::vector<Record*> children = orphans_.children_of(parents.back());
    parents.pop_back();
    for (Record* child : children) {
      if (link_orphan(*child, realm) && child->name.kind != ObjectKind::snapshot) {
        parents.push_back(child->name.id);
      }
    }
  }
}

}  // namespace kv
