// Syncs of the SSD's folders.
#include "cachesvc/core/syncer.h"

namespace kv {
namespace {

constexpr size_t kSyncedAtATime =
    64;  // records of one handler: after a start they are all there is

}  // namespace

void Syncer::schedule() {
  if (syncing_ || delay_.armed()) return;
  delay_.arm_in(env_.options.durable_group_delay);
}

void Syncer::run() {
  if (syncing_ || !lane_) return;
  syncing_ = true;
  const uint64_t sync = records_.syncs() + 1;
  lane_.run([ssd = lane_.ssd()] { return ssd->sync(); },
            [this, sync](Status status) {
              if (status.ok()) return synced(sync);
              ++failed_;
              lane_.write_failed(nullptr, status);
              end();
            });
  records_.begin_sync();
}

void Syncer::synced(uint64_t sync) {
  if (!records_.synced(sync, kSyncedAtATime)) return env_.later([this, sync] { synced(sync); });
  end();
}

void Syncer::end() {
  syncing_ = false;
  env_.progress();
}

}  // namespace kv
