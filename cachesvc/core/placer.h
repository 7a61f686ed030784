// Placer: gives what a start found its place in the index: models, objects, and orphans, which
// wait for their parent, model or profile. Objects over the index's share are deleted.
//
// Called by the reconciler, part by part; done() comes once, after the last. Loop thread only.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cachesvc/core/ends.h"
#include "cachesvc/core/expiries.h"
#include "cachesvc/core/found.h"
#include "cachesvc/core/models.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

class Placer {
 public:
  Placer(Env& env, ObjectIndex& index, Ends& ends, Expiries& expiries, Records& records,
         Found& found, Models& models, RamRoom& room)
      : env_(env),
        index_(index),
        ends_(ends),
        expiries_(expiries),
        records_(records),
        found_(found),
        models_(models),
        room_(room) {}
  Placer(const Placer&) = delete;
  Placer& operator=(const Placer&) = delete;

  /// Takes the models and profiles out of `recovery`. Before any objects.
  void models(Recovery& recovery);
  /// Objects in any order; one without a place in the index's share loses its file.
  void objects(const std::vector<KnownObject>& objects);
  /// Keeps the most recently used, each with its ancestors, if the index's share is smaller than in
  /// the run before; deletes the files of the others.
  void keep_most_recent(std::vector<KnownObject>& objects);
  /// Deletes files read in the background that exceed the share: objects in the index were used
  /// later.
  void drop_over_share(std::vector<KnownObject>& objects);
  /// Everything has its place: forgets profiles that no object named; unused models rest.
  void done();

  bool keeps_profiles() const { return !profiles_.empty(); }

 private:
  /// A record that has its place in the index, and its file.
  struct Adopted {
    Record* record;
    const KnownObject* known;
  };
  RealmState* realm_of(const Object& object);
  bool link(const KnownObject& known, std::vector<Adopted>& linked);
  bool adopt_orphan(const KnownObject& known);
  void keep_note(Record& record, const ObjectNote& note);

  Env& env_;
  ObjectIndex& index_;
  Ends& ends_;
  Expiries& expiries_;
  Records& records_;
  Found& found_;
  Models& models_;
  RamRoom& room_;
  std::map<Id, std::shared_ptr<const Profile>> profiles_;  // kept until done()
};

}  // namespace kv
