// EraseTargets against every object that there is: what an erase finds in parts, while others are
// evicted, is what belongs to it.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "cachesvc/core/erase_targets.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

constexpr uint32_t kBlock = 16;

bool begins(const Sequence& tokens, const Sequence& with) {
  return tokens.size() >= with.size() && std::equal(with.begin(), with.end(), tokens.begin());
}

// Two models in two namespaces, one of them under two profiles, and what each object begins with.
class Stored {
 public:
  explicit Stored(uint32_t seed) : rng_(seed), base_(random_tokens(rng_, 60)) {
    const auto spec = std::make_shared<const ModelSpec>(model_of(
        {LayerSpec{{full_part(), state_part(SnapshotPlace::checkpoint), window_part(8, 2)}}}));
    const auto more = std::make_shared<const ModelSpec>(model_of(
        {LayerSpec{{full_part(), state_part(SnapshotPlace::checkpoint), window_part(8, 2)}}}, 9));
    for (const std::string ns : {"mine", "other"}) {
      add_realm(ns, spec, 4);
      add_realm(ns, more, 4);
    }
    add_realm("mine", spec, 8);
  }

  // The model of `mine` with two profiles.
  const ModelState& model() const { return model_; }

  void store_some(size_t entries) {
    for (size_t i = 0; i < entries; ++i) store(*realms_[below(realms_.size())], entry());
  }
  // The beginning of what is often stored, and sometimes something else.
  Sequence entry() {
    Sequence tokens(base_.begin(), base_.begin() + static_cast<ptrdiff_t>(below(base_.size())));
    if (below(3) > 0) {
      const Sequence own = random_tokens(rng_, 1 + below(30), 2);
      tokens.insert(tokens.end(), own.begin(), own.end());
    }
    return tokens.empty() ? entry() : tokens;
  }
  // The tokens of some object of the model.
  Sequence stored_entry() {
    for (int tries = 0; tries < 1000; ++tries) {
      const auto& [name, o] =
          *std::next(objects_.begin(), static_cast<ptrdiff_t>(below(objects_.size())));
      const bool ours =
          o.realm->realm.ns == "mine" && o.realm->realm.fingerprint == model_.spec->fingerprint;
      if (ours && !o.tokens.empty()) return o.tokens;
    }
    return entry();
  }
  size_t below(size_t n) { return rng_() % n; }

  // Names of what begins with the query in the model, or in its namespace: of an orphan all that
  // can't be excluded.
  std::set<ObjectName> expected(bool whole_namespace, const Sequence& query) const {
    std::set<ObjectName> out;
    for (const auto& [name, o] : objects_) {
      if (o.realm->realm.ns != "mine") continue;
      if (!whole_namespace && o.realm->realm.fingerprint != model_.spec->fingerprint) continue;
      const bool orphan = index.find(name)->orphan != nullptr;
      if (whole_namespace || (orphan ? may_begin(o, query) : begins(o.tokens, query))) {
        out.insert(name);
      }
    }
    return out;
  }

  // Names of what the entry has and no other one: under each profile, from its end up to where some
  // object goes on that is no part of it.
  std::set<ObjectName> expected_of_entry(const Sequence& query) const {
    std::set<ObjectName> out;
    for (const auto& realm : realms_) {
      if (realm->realm.ns == "mine" && realm->realm.fingerprint == model_.spec->fingerprint) {
        add_own(*realm, query, out);
      }
    }
    return out;
  }

  // Removes the targets in parts, and between them now and then another object. Returns: the names
  // of those that were removed, with those that went meanwhile.
  std::set<ObjectName> remove(EraseTargets& targets) {
    std::set<ObjectName> out;
    while (!targets.done()) {
      const size_t most = 1 + below(6);
      const auto part = targets.next(most);
      EXPECT_LE(part.size(), most);
      for (Record* r : part) {
        EXPECT_TRUE(out.insert(r->name).second) << "twice";
        forget(*r);
      }
      if (below(4) > 0 || objects_.empty()) continue;
      auto it = std::next(objects_.begin(), static_cast<ptrdiff_t>(below(objects_.size())));
      Record* evicted = index.find(it->first);
      if (evicted->orphan || is_main(evicted->name.kind)) continue;  // others may lose their parent
      evicted_.insert(it->first);
      forget(*evicted);
    }
    return out;
  }
  const std::set<ObjectName>& evicted() const { return evicted_; }

  // Orphans' answers on each realm's model and profile agree with all objects.
  void check_orphans() const {
    std::set<Id> profiles;
    std::map<std::pair<std::string, Id>, std::set<Id>> of_model;
    for (const auto& [name, o] : objects_) {
      if (!index.find(name)->orphan) continue;
      profiles.insert(o.realm->realm.profile);
      of_model[{o.realm->realm.ns, o.realm->realm.fingerprint}].insert(o.realm->realm.profile);
    }
    for (const auto& realm : realms_) {
      const auto& [ns, fingerprint, profile] = realm->realm;
      EXPECT_EQ(index.orphans().names_profile(profile), profiles.contains(profile));
      auto others = of_model[{ns, fingerprint}];
      EXPECT_EQ(index.orphans().has(ns, fingerprint), !others.empty());
      others.erase(profile);
      EXPECT_EQ(index.orphans().has(ns, fingerprint, profile), !others.empty());
    }
  }
  size_t size() const { return objects_.size(); }

  ObjectIndex index;
  Records records{index};

 private:
  struct Known {
    RealmState* realm = nullptr;
    Sequence tokens;     // from the root to the object's end
    uint32_t first = 0;  // of its own
    Id parent;
  };

  void add_realm(const std::string& ns, const std::shared_ptr<const ModelSpec>& spec, int bits) {
    const auto profile = make_profile(*spec, bits, kBlock);
    realms_.push_back(index.realm({ns, spec->fingerprint, profile->id()}, spec, profile));
    if (model_.spec) return;
    model_.ns = ns;
    model_.spec = spec;
  }

  // Tokens before an orphan are known while its parent is there; else its id alone.
  bool may_begin(const Known& o, const Sequence& query) const {
    if (o.tokens.size() < query.size()) return false;
    for (const Known* at = &o;;) {
      for (size_t i = at->first; i < std::min(query.size(), at->tokens.size()); ++i) {
        if (at->tokens[i] != query[i]) return false;
      }
      const bool linked = at->realm->node_of.find(at->parent) != nullptr;
      if (linked || at->first <= query.size()) {
        return std::equal(query.begin(),
                          query.begin() + std::min<ptrdiff_t>(at->first, query.size()),
                          at->tokens.begin());
      }
      auto above = objects_.find(ObjectName{ObjectKind::block, at->parent, 0, 0, 0});
      if (above == objects_.end()) return true;
      at = &above->second;
    }
  }

  // An object that is no orphan.
  struct Linked {
    ObjectName name;
    Sequence tokens, node;  // node: without a snapshot's own
  };
  std::vector<Linked> linked(const RealmState& realm) const {
    std::vector<Linked> all;
    for (const auto& [name, o] : objects_) {
      if (o.realm != &realm || index.find(name)->orphan) continue;
      const bool snapshot = name.kind == ObjectKind::snapshot;
      const size_t end = snapshot ? o.first : o.tokens.size();
      all.push_back({name, o.tokens, slice(o.tokens, 0, end)});
    }
    return all;
  }
  static bool ends_with(const std::vector<Linked>& all, const Sequence& query) {
    return std::any_of(all.begin(), all.end(), [&](const Linked& o) {
      const bool inside = query.size() % kBlock == 0 && begins(o.node, query);
      return inside || (o.tokens == query && o.name.kind != ObjectKind::supplement);
    });
  }
  // Where the entry's own objects begin: at the last node of which something else goes on.
  static Sequence stop_of(const std::vector<Linked>& all, const Sequence& query) {
    size_t stop = 0;
    for (const Linked& o : all) {
      if (begins(query, o.tokens)) continue;
      size_t same = 0;
      while (same < std::min(o.node.size(), query.size()) && o.node[same] == query[same]) ++same;
      stop = std::max(stop, same - same % kBlock);
    }
    return slice(query, 0, stop);
  }

  void add_own(const RealmState& realm, const Sequence& query, std::set<ObjectName>& out) const {
    const std::vector<Linked> all = linked(realm);
    if (!ends_with(all, query)) return;
    const Sequence stop = stop_of(all, query);
    auto others_go_on = [&](const Sequence& tokens) {
      return std::any_of(all.begin(), all.end(), [&](const Linked& o) {
        return o.node.size() > stop.size() && begins(o.node, tokens) && !begins(query, o.node);
      });
    };
    for (const Linked& o : all) {
      if (!begins(query, o.tokens) || !begins(o.node, stop)) continue;
      if (o.node.size() == stop.size() && o.name.kind != ObjectKind::snapshot) continue;
      const bool below = o.node.size() >= stop.size() + kBlock;
      if (below || o.tokens == query || !others_go_on(o.tokens)) out.insert(o.name);
    }
  }

  void forget(Record& record) {
    objects_.erase(record.name);
    records.remove(record);
  }

  // Adds one object. Returns: its id; zero for an orphan.
  Id add(RealmState& realm, ObjectKind kind, const Sequence& tokens, uint32_t first,
         const Id& parent, bool orphan) {
    Object o;
    o.name.kind = kind;
    o.name.end_row = kind == ObjectKind::supplement ? 8 : 0;
    o.first_token = first;
    o.tokens.assign(tokens.begin() + first, tokens.end());
    o.parent = parent;
    stamp(o, realm.realm);
    const Record* known = index.find(o.name);
    if (known && (orphan || known->realm)) return o.name.id;
    Record* r = orphan ? index.add_orphan(o, Charge()) : index.add(realm, o, Charge());
    EXPECT_NE(r, nullptr);
    if (!known) records.found(*r, 900, 1000, 4096, objects_.size());
    objects_[o.name] = {&realm, tokens, first, parent};
    if (kind == ObjectKind::block && !orphan) index.relink(realm, o.name.id);
    return o.name.id;
  }

  // Blocks and a tail, each perhaps with a supplement, perhaps a snapshot somewhere; or, one time
  // in four, the last of it without what is before.
  void store(RealmState& realm, const Sequence& tokens) {
    const bool lost = below(4) == 0 && tokens.size() > kBlock;
    Id parent;
    for (uint32_t first = 0; first < tokens.size(); first += kBlock) {
      const uint32_t end = std::min<uint32_t>(first + kBlock, static_cast<uint32_t>(tokens.size()));
      const Sequence until(tokens.begin(), tokens.begin() + end);
      const auto kind = end - first == kBlock ? ObjectKind::block : ObjectKind::tail;
      if (lost) {
        if (end < tokens.size()) {
          parent = block_id(realm.realm, parent, {&tokens[first], kBlock}, {}, ObjectKind::block);
          continue;
        }
        const bool has_parent = realm.node_of.find(parent) != nullptr;
        if (!has_parent) add(realm, kind, until, first, parent, true);
        return;
      }
      if (kind == ObjectKind::tail && below(3) == 0) {  // a state is all that there is of its end
        add(realm, ObjectKind::snapshot, until, first, parent, false);
        return;
      }
      if (below(3) == 0) {
        const uint32_t at = first + static_cast<uint32_t>(below(end - first));
        add(realm, ObjectKind::snapshot, {until.begin(), until.begin() + at}, first, parent, false);
      }
      const Id id = add(realm, kind, until, first, parent, false);
      if (below(2) == 0 && kind == ObjectKind::block) {
        add(realm, ObjectKind::supplement, until, first, parent, false);
      }
      parent = id;
    }
  }

  std::mt19937 rng_;
  const Sequence base_;
  std::vector<std::shared_ptr<RealmState>> realms_;
  ModelState model_;
  std::map<ObjectName, Known> objects_;
  std::set<ObjectName> evicted_;
};

// The targets that were found are the expected ones, but for those that were evicted first.
void check(Stored& stored, std::set<ObjectName> expected, EraseTargets& targets) {
  const size_t before = stored.size();
  const std::set<ObjectName> found = stored.remove(targets);
  for (const ObjectName& name : found) {
    EXPECT_TRUE(expected.contains(name)) << "not of the erase";
  }
  for (const ObjectName& name : expected) {
    EXPECT_TRUE(found.contains(name) || stored.evicted().contains(name))
        << "left: kind " << static_cast<int>(name.kind);
  }
  EXPECT_LE(stored.size(), before - found.size());
  stored.check_orphans();
}

TEST(EraseTargets, AreAllThatBelongToIt) {
  const uint32_t base = std::random_device()();
  size_t found[2] = {};
  for (uint32_t seed = base; seed < base + 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Stored stored(seed);
    stored.store_some(40);
    const bool whole = stored.below(4) == 0;
    Sequence query;
    if (!whole && stored.below(8) > 0) query = stored.entry();
    const auto expected = stored.expected(whole, query);
    auto targets =
        whole ? EraseTargets::of_namespace(stored.index, "mine")
              : std::move(*EraseTargets::beginning_with(stored.index, stored.model(), {query, {}}));
    check(stored, expected, *targets);
    found[whole] += expected.size();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(found[0], 1'000u);
  EXPECT_GT(found[1], 1'000u);
}

TEST(EraseTargets, OfAnEntryAreWhatNoOtherEntryHas) {
  const uint32_t base = std::random_device()();
  size_t found = 0;
  for (uint32_t seed = base; seed < base + 900; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Stored stored(seed);
    stored.store_some(12);
    const Sequence query = stored.stored_entry();
    const auto expected = stored.expected_of_entry(query);
    auto targets = EraseTargets::of_entry(stored.index, stored.model(), {query, {}});
    check(stored, expected, **targets);
    found += expected.size();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(found, 300u);
}

}  // namespace
}  // namespace kv
