// Places of found objects in the index; files over its share.
#include "cachesvc/core/placer.h"

#include <algorithm>
#include <unordered_map>

#include "cachesvc/core/entry_record.h"
#include "cachesvc/core/index_bytes.h"
#include "proto/identity.h"

namespace kv {
namespace {

bool is_attached(const Object& o) { return o.name.kind >= ObjectKind::supplement; }

uint64_t index_bytes(const KnownObject& known) {
  return kv::index_bytes(known.header.name.kind, known.header.tokens);
}

// Parents before children, blocks and tails before what hangs on them.
bool before(const KnownObject& a, const KnownObject& b) {
  return std::tuple(a.header.first_token, is_attached(a.header)) <
         std::tuple(b.header.first_token, is_attached(b.header));
}

// The order in which objects are kept: each as recent as the most recent that hangs on it.
// `objects` are in the order of `before`.
std::vector<size_t> by_recency(const std::vector<KnownObject>& objects) {
  std::unordered_map<Id, size_t, IdHash> blocks;  // by id: where
  for (size_t i = 0; i < objects.size(); ++i) {
    const ObjectName& name = objects[i].header.name;
    if (is_main(name.kind)) blocks[name.id] = i;
  }
  std::vector<uint64_t> recency(objects.size());
  std::vector<size_t> order(objects.size());
  for (size_t i = objects.size(); i-- > 0;) {
    const Object& o = objects[i].header;
    order[i] = i;
    recency[i] = std::max(recency[i], objects[i].recency);
    auto parent = blocks.find(o.name.kind == ObjectKind::supplement ? o.name.id : o.parent);
    if (parent != blocks.end() && parent->second < i) {
      recency[parent->second] = std::max(recency[parent->second], recency[i]);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return recency[a] > recency[b]; });
  return order;
}

}  // namespace

void Placer::models(Recovery& recovery) {
  for (auto& p : recovery.profiles) {
    if (auto room = env_.pool->try_charge(ChargeKind::model, held_bytes(*p)))
      profiles_[p->id()] = charged(p, std::move(*room));
  }
  recovery.profiles.clear();
  for (auto& record : recovery.models) models_.found(std::move(record), profiles_);
}

// The realm of an object that was found; null without its model record or profile.
RealmState* Placer::realm_of(const Object& o) {
  Realm realm{o.ns, o.fingerprint, o.profile};
  if (RealmState* known = index_.realms().find(realm)) return known;
  const ModelState* model = models_.find({o.ns, o.fingerprint});
  auto profile = profiles_.find(o.profile);
  if (!model || profile == profiles_.end()) return nullptr;
  if (!validate(*profile->second, *model->spec).ok()) return nullptr;
  RealmState* made = index_.realm(realm, model->spec, profile->second).get();
  index_.set_in_force(*made, false);  // the model record names another profile
  return made;
}

// Objects mostly come in the order of their writing, parents first and near their children; the
// others are linked in a second pass. All enter the SSD's eviction order afterwards, children
// first.
void Placer::objects(const std::vector<KnownObject>& objects) {
  std::vector<const KnownObject*> others;
  std::vector<Adopted> linked;
  linked.reserve(objects.size());
  for (const KnownObject& known : objects) {
    if (!link(known, linked)) others.push_back(&known);
  }
  std::sort(others.begin(), others.end(), [](const KnownObject* a, const KnownObject* b) {
    return std::tuple(is_attached(a->header), a->header.first_token) <
           std::tuple(is_attached(b->header), b->header.first_token);
  });
  uint64_t skipped = 0;
  std::vector<ObjectName> dropped;
  for (const KnownObject* known : others) {
    if (link(*known, linked)) continue;
    adopt_orphan(*known) ? void(++skipped) : dropped.push_back(known->header.name);
  }
  for (auto it = linked.rbegin(); it != linked.rend(); ++it) {
    const KnownObject& k = *it->known;
    records_.found(*it->record, k.unpacked_bytes, k.file_bytes, k.allocated_bytes, k.recency);
  }
  found_.objects(linked.size(), skipped);
  room_.drop_files(std::move(dropped));  // RAM has less for the index than its share
}

// Links the object into its tree. False if it has no place (yet).
bool Placer::link(const KnownObject& known, std::vector<Adopted>& linked) {
  const Object& o = known.header;
  RealmState* realm = realm_of(o);
  if (!realm) return false;
  auto charge = env_.pool->try_charge(ChargeKind::index, index_bytes(known));
  Record* r = charge ? index_.add(*realm, o, std::move(*charge)) : nullptr;
  if (!r) return false;
  keep_note(*r, known.note);
  linked.push_back({r, &known});
  if (o.name.kind != ObjectKind::snapshot) index_.relink(*realm, o.name.id);
  return true;
}

// A note that the index has no room for is lost, but for a time: that object waits for no room.
void Placer::keep_note(Record& record, const ObjectNote& note) {
  if (note.named_end && record.attachment) ends_.keep(record);
  if (is_main(record.name.kind) && !note.words.empty()) (void)say(env_, record, note.words);
  if (note.expires == 0) return;
  auto charge = env_.pool->try_charge(ChargeKind::index, Expiries::kBytes);
  expiries_.set(record, note.expires, charge ? std::move(*charge) : Charge());
}

// An object without its parent, model or profile serves nothing, but stays on the SSD until that
// returns or bytes are needed there. False: the index has no room for it.
bool Placer::adopt_orphan(const KnownObject& known) {
  const Object& o = known.header;
  const uint64_t bytes = orphan_bytes(o.tokens.size());
  auto charge =
      room_.index_full(bytes) ? std::nullopt : env_.pool->try_charge(ChargeKind::index, bytes);
  if (!charge) return false;
  Record* r = index_.add_orphan(o, std::move(*charge));
  records_.found(*r, known.unpacked_bytes, known.file_bytes, known.allocated_bytes, known.recency);
  keep_note(*r, known.note);
  return true;
}

// Keeps the most recently used of the objects found, each with its ancestors, if the index's share
// is smaller than in the run before; deletes the files of the others.
void Placer::keep_most_recent(std::vector<KnownObject>& objects) {
  uint64_t all = 0;
  for (const KnownObject& o : objects) all += index_bytes(o);
  if (all <= room_.index_limit()) return;
  std::sort(objects.begin(), objects.end(), before);
  std::vector<KnownObject> kept;
  std::vector<ObjectName> dropped;
  uint64_t used = env_.pool->used_bytes(ChargeKind::index);
  for (size_t i : by_recency(objects)) {
    used += index_bytes(objects[i]);
    if (used > room_.index_limit()) {
      dropped.push_back(objects[i].header.name);
    } else {
      kept.push_back(std::move(objects[i]));
    }
  }
  objects = std::move(kept);
  room_.drop_files(std::move(dropped));
}

// Deletes files read in the background that exceed the share: objects in the index were used later.
void Placer::drop_over_share(std::vector<KnownObject>& objects) {
  uint64_t bytes = 0;
  std::vector<ObjectName> dropped;
  std::erase_if(objects, [&](const KnownObject& o) {
    bytes += index_bytes(o);
    if (!room_.index_full(bytes)) return false;
    dropped.push_back(o.header.name);
    return true;
  });
  room_.drop_files(std::move(dropped));
}

void Placer::done() {
  profiles_.clear();
  models_.rest_unused();
}

}  // namespace kv
