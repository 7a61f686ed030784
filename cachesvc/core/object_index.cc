// Records, their nodes and their places in the two eviction orders.
#include "cachesvc/core/object_index.h"

#include <algorithm>

namespace kv {
namespace {

// Estimates of what containers take beside the tokens; checked against malloc in the bench.
// Measured, tests/cachesvc_index_share_test.cc: a node or an attachment, a record, and their places
// in maps and orders.
constexpr uint64_t kIndexBytesPerObject = 648;
constexpr uint64_t kIndexBytesPerOrphan = 896;
constexpr EntryKey kAttachedKey = 1ull << 63;  // not named by a node: a serial follows

EntryKey node_key(const RealmState& realm, NodeId node) {
  return (uint64_t{realm.index} << 32) | node;
}

bool is_main(const Record& r) {
  return r.name.kind == ObjectKind::block || r.name.kind == ObjectKind::tail;
}

}  // namespace

uint64_t ObjectIndex::index_bytes(ObjectKind kind, std::span<const Token> tokens) {
  if (kind == ObjectKind::snapshot) return most_index_bytes(tokens.size());
  return kIndexBytesPerObject + TokenRun::packed_bytes(tokens);
}

uint64_t ObjectIndex::most_index_bytes(size_t tokens) {
  return kIndexBytesPerObject + tokens * sizeof(Token);
}

uint64_t ObjectIndex::orphan_bytes(size_t tokens) {
  return kIndexBytesPerOrphan + tokens * sizeof(Token);
}

std::shared_ptr<RealmState> ObjectIndex::realm(const Realm& realm,
                                               std::shared_ptr<const ModelSpec> model,
                                               std::shared_ptr<const Profile> profile) {
  for (auto& r : realms_) {
    if (r->realm == realm) return r;
  }
  realms_.push_back(
      std::make_shared<RealmState>(realm, next_realm_, std::move(model), std::move(profile)));
  ++next_realm_;
  return realms_.back();
}

RealmState* ObjectIndex::find_realm(const Realm& realm) {
  for (auto& r : realms_) {
    if (r->realm == realm) return r.get();
  }
  return nullptr;
}

std::vector<RealmState*> ObjectIndex::realms_of(const std::string& ns, const Id& fingerprint) {
  std::vector<RealmState*> out;
  for (auto& r : realms_) {
    if (r->realm.ns == ns && r->realm.fingerprint == fingerprint) out.push_back(r.get());
  }
  return out;
}

std::vector<Id> ObjectIndex::release_realms() {
  std::vector<Id> profiles;
  std::erase_if(realms_, [&](const std::shared_ptr<RealmState>& r) {
    if (r.use_count() > 1 || !r->empty()) return false;
    profiles.push_back(r->realm.profile);
    return true;
  });
  std::erase_if(profiles, [this](const Id& id) { return names_profile(id); });
  return profiles;
}

bool ObjectIndex::names_profile(const Id& id) const {
  return std::any_of(realms_.begin(), realms_.end(),
                     [&](const auto& r) { return r->realm.profile == id; }) ||
         std::any_of(orphans_.begin(), orphans_.end(),
                     [&](const auto& o) { return o.second->orphan->header.profile == id; });
}

Record* ObjectIndex::find(const ObjectName& name) {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &it->second;
}

const Record* ObjectIndex::find(const ObjectName& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &it->second;
}

Record* ObjectIndex::find(const PinnedName& pinned) {
  Record* r = find(pinned.name);
  return r && r->serial == pinned.serial ? r : nullptr;
}

Record* ObjectIndex::find_usable(const ObjectName& name) {
  Record* r = find(name);
  return r && r->realm && r->usable(kUnreadableIsMissing) ? r : nullptr;
}

Record* ObjectIndex::find_key(EntryKey key) {
  if (key & kAttachedKey) {
    auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : it->second;
  }
  auto realm = std::lower_bound(realms_.begin(), realms_.end(), key >> 32,
                                [](const auto& r, uint64_t index) { return r->index < index; });
  auto node = static_cast<NodeId>(key);
  bool known = realm != realms_.end() && (*realm)->index == key >> 32;
  return known && node < (*realm)->nodes.size() ? (*realm)->nodes[node].main : nullptr;
}

NodeId ObjectIndex::owner_node(RealmState& realm, const Object& object) {
  NodeId parent = kRootNode;
  if (!object.parent.is_zero()) {
    auto it = realm.node_of.find(object.parent);
    if (it == realm.node_of.end()) return kNoNode;
    parent = it->second;
  }
  // A parent block ends where its child begins: a file that says otherwise is no child of it.
  if (realm.tree.end_token(parent) != object.first_token) return kNoNode;
  if (object.name.kind == ObjectKind::snapshot) return parent;
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
  EntryKey before = link(r, realm, node, object);
  if (known) settle_orphan(r, before);  // its parent is back
  r.serial = next_serial_++;
  r.index_charge = std::move(index_charge);
  return &r;
}

void ObjectIndex::expect(size_t objects) {
  by_name_.reserve(by_name_.size() + objects);
  ssd_.expect(objects);
  for (auto& r : realms_) {  // as if each had the same share of them
    r->node_of.reserve(r->node_of.size() + objects / realms_.size());
  }
}

// A place for it in the tree, and a key that it has not had before. Returns: its key until now.
EntryKey ObjectIndex::link(Record& r, RealmState& realm, NodeId node, const Object& object) {
  RealmState::Node& n = realm.nodes[node];
  std::unique_ptr<Attachment> attachment;
  if (!is_main(r)) attachment = std::make_unique<Attachment>();
  if (r.name.kind == ObjectKind::snapshot) {
    attachment->tokens = object.tokens;
    attachment->extras = object.extras;
    attachment->position = object.end_token();
  }
  EntryKey key = is_main(r) ? node_key(realm, node) : kAttachedKey | next_serial_++;
  if (is_main(r)) {
    n.main = &r;
  } else {
    by_key_.emplace(key, &r);
    n.attached.push_back(&r);
  }
  r.realm = &realm;
  r.node = node;
  r.attachment = std::move(attachment);
  return std::exchange(r.key, key);
}

void ObjectIndex::unlink(Record& record) {
  RealmState& realm = *std::exchange(record.realm, nullptr);
  RealmState::Node& node = realm.nodes[record.node];
  if (node.main == &record) node.main = nullptr;
  std::erase(node.attached, &record);
  by_key_.erase(record.key);
  prune(realm, record.node);
}

Record* ObjectIndex::add_orphan(const Object& object, Charge index_charge) {
  if (find(object.name)) return nullptr;
  auto orphan = std::make_unique<Orphan>();
  orphan->header = object;
  Record& r = by_name_[object.name];
  r.name = object.name;
  r.serial = next_serial_++;
  r.key = kAttachedKey | r.serial;
  by_key_.emplace(r.key, &r);
  orphans_.emplace(object.parent, &r);
  r.orphan = std::move(orphan);
  r.index_charge = std::move(index_charge);
  return &r;
}

void ObjectIndex::remove(Record& record) {
  while (record.pins > 0) unpin(record);
  drop_ram(record);
  if (record.on_ssd()) quit_ssd(record);
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

EntryOptions ObjectIndex::entry_options(const Record& record, uint64_t charge_bytes) const {
  EntryOptions options;
  options.charge_bytes = charge_bytes;
  options.urgency = urgency(record);
  if (record.realm) {
    bool main = record.name.kind == ObjectKind::block || record.name.kind == ObjectKind::tail;
    NodeId parent = main ? record.realm->tree.parent(record.node) : record.node;
    if (parent != kRootNode) options.parent = node_key(*record.realm, parent);
  }
  return options;
}

void ObjectIndex::set_ram(Record& record, RamObject object) {
  uint64_t payload_bytes = object->payload_bytes();
  EntryOptions options = entry_options(record, RamPool::slab_bytes(payload_bytes));
  options.dirty = !record.on_ssd();
  if (ram_.insert(record.key, options) && record.pins > 0) ram_.pin(record.key);
  record.payload_bytes = payload_bytes;
  record.ram = std::move(object);
}

void ObjectIndex::drop_ram(Record& record) {
  if (!record.ram) return;
  if (record.pins > 0) ram_.unpin(record.key);
  KV_CHECK(ram_.erase(record.key));
  record.ram = {};
}

void ObjectIndex::set_disk(Record& record, Disk to, uint64_t allocated_bytes,
                           std::optional<uint64_t> recency) {
  if (record.on_ssd() && !kv::on_ssd(to)) quit_ssd(record);
  if (!record.on_ssd() && kv::on_ssd(to)) {
    EntryOptions options = entry_options(record, allocated_bytes);
    options.recency = recency;
    if (ssd_.insert(record.key, options) && record.pins > 0) ssd_.pin(record.key);
  }
  record.disk = to;
  if (record.ram) ram_.set_dirty(record.key, !record.on_ssd());
}

void ObjectIndex::quit_ssd(const Record& record) {
  if (record.pins > 0) ssd_.unpin(record.key);
  KV_CHECK(ssd_.erase(record.key));
}

void ObjectIndex::pin(Record& record) {
  ++pins_;
  if (++record.pins > 1) return;
  if (record.ram) ram_.pin(record.key);
  if (record.on_ssd()) ssd_.pin(record.key);
}

void ObjectIndex::unpin(Record& record) {
  KV_CHECK(record.pins > 0);
  --pins_;
  if (--record.pins > 0) return;
  if (record.ram) ram_.unpin(record.key);
  if (record.on_ssd()) ssd_.unpin(record.key);
}

void ObjectIndex::touch(const std::vector<Record*>& records) {
  std::vector<EntryKey> keys;
  for (Record* r : records) keys.push_back(r->key);
  ram_.touch_all(keys);
  ssd_.touch_all(keys);
}

void ObjectIndex::set_in_force(RealmState& realm, bool in_force) {
  realm.in_force = in_force;
  for (auto& [name, record] : by_name_) {
    if (record.realm == &realm) reorder(record);
  }
}

std::vector<Record*> ObjectIndex::all_of(const std::string& ns) {
  std::vector<Record*> out;
  for (auto& [name, record] : by_name_) {
    const std::string& own = record.realm ? record.realm->realm.ns : record.orphan->header.ns;
    if (own == ns) out.push_back(&record);
  }
  return out;
}

Record* ObjectIndex::parent_of(Record& record) {
  if (!record.realm) return nullptr;
  RealmState& realm = *record.realm;
  bool main = record.name.kind == ObjectKind::block || record.name.kind == ObjectKind::tail;
  NodeId node = main ? realm.tree.parent(record.node) : record.node;
  return node == kRootNode ? nullptr : realm.nodes.at(node).main;
}

std::vector<Record*> ObjectIndex::path_to(Record& record) {
  std::vector<Record*> path{&record};
  if (!record.realm) return path;
  RealmState& realm = *record.realm;
  bool main = record.name.kind == ObjectKind::block || record.name.kind == ObjectKind::tail;
  NodeId at = main ? realm.tree.parent(record.node) : record.node;
  for (; at != kRootNode; at = realm.tree.parent(at)) {
    if (Record* r = realm.nodes.at(at).main) path.push_back(r);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace kv
