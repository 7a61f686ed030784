// Begin, progress and end of all owners.
#include "cachesvc/core/owners.h"

namespace kv {

void Owners::begin() {
  env->begin([this] { go_on(); }, [this] { room.pump(); },
             [this] {
               env->event(EventKind::no_memory, [] { return ""; });
               close("out of memory");
             });
  env->pool->on_release([wake = env->room_wake()] { wake->ask(); });
}

void Owners::go_on() {
  spiller.pump();
  opens.go_on();
  levels.answer();
  eraser.go_on();
  commits.go_on();
  demotes.go_on();
  drain.go_on();
  warm.keep_ready();
}

void Owners::close(const char* why) {
  if (env->closed()) return;
  env->pool->on_release(nullptr);
  env->drain();
  calls.end_all(why);
  env->close();
  room.close();
  levels.close();
  commits.close();
  demotes.close();
  expirer.close();
  opens.close();
  drain.close();
  promoter.close();
  eraser.close();
  remote_reads.close();
  fetches.close();
  holds.close();
  reservations.close();
  lane.close();
}

void Owners::check_invariants() {
  found.check_invariants();
  ring.check_invariants();
  records.check_invariants();  // with the index and its tiers
  lane.check_invariants();
  recency.check_invariants();
  expiries.check_invariants();
  expirer.check_invariants();
  models.check_invariants();
  pace.check_invariants();
  spill_writer.check_invariants();
  spiller.check_invariants();
  remote_writes.check_invariants();
  room.check_invariants();
  promoter.check_invariants();
  reconciler.check_invariants();
  scrubber.check_invariants();
  calls.check_invariants();
  levels.check_invariants();
  eraser.check_invariants();
  holds.check_invariants();
  reservations.check_invariants();
  fetches.check_invariants();
  demotes.check_invariants();
  opens.check_invariants();
  drain.check_invariants();
}

}  // namespace kv
