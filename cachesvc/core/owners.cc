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
  opens.close();
  drain.close();
  promoter.close();
  eraser.close();
  holds.close();
  reservations.close();
  lane.close();
}

}  // namespace kv
