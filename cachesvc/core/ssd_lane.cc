// Unlinks and their failures; notes for the next start.
#include "cachesvc/core/ssd_lane.h"

#include <algorithm>

#include "storage/file_names.h"

namespace kv {

SsdLane::SsdLane(Env& env, ObjectIndex& index, Records& records)
    : env_(env),
      index_(index),
      records_(records),
      lane_(std::make_shared<Lane>(env.disk)),
      watch_(env) {}

void SsdLane::open(std::shared_ptr<SsdTier> tier, Charge read_buffers) {
  ssd_ = std::move(tier);
  read_buffers_ = std::move(read_buffers);
}

void SsdLane::close() {
  watch_.close();
  if (!ssd_) return;
  auto end = env_.task([ssd = std::move(ssd_)] { return true; }, [](bool) {});
  ssd_.reset();
  lane_->submit_behind(std::move(end));
}

// Unlinks.

Status SsdLane::Unlinks::run(SsdTier& ssd) {
  Status first;
  for (auto part = parts.begin(); part != parts.end();) {
    auto next = std::next(part);
    Status status = part->empty() ? Status() : ssd.erase(*part, behind).status();
    if (status.ok()) gone.splice(gone.end(), parts, part);
    part = next;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

std::shared_ptr<WorkerTask> SsdLane::unlink_task(std::shared_ptr<Unlinks> files,
                                                 std::function<void(Status)> then) {
  return counted([ssd = ssd_, files] { return files->run(*ssd); },
                 [this, files, then = std::move(then)](Status status) {
                   unlinked(*files);
                   if (then) then(std::move(status));
                 });
}

void SsdLane::unlink(std::vector<ObjectName> names) {
  if (!ssd_ || names.empty()) return;
  auto files = std::make_shared<Unlinks>();
  files->parts.push_back(std::move(names));
  lane_->submit(unlink_task(std::move(files), {}));
}

void SsdLane::unlink_behind(std::vector<ObjectName> names, bool fence,
                            std::function<void(Status)> then) {
  if (!ssd_ || names.empty()) return;
  unlinking_.insert(names.begin(), names.end());
  auto files = std::make_shared<Unlinks>();
  files->parts.push_back(std::move(names));
  files->behind = true;
  lane_->submit_behind(unlink_task(std::move(files), std::move(then)), fence);
}

// Jobs that wait for the names go on.
void SsdLane::unlinked(Unlinks& files) {
  if (files.behind) {
    for (const Parts* all : {&files.parts, &files.gone}) {
      for (const auto& part : *all) {
        for (const ObjectName& name : part) unlinking_.erase(unlinking_.find(name));
      }
    }
    env_.progress();
  }
  left_.splice(left_.end(), files.parts);
}

// Forgets failed unlinks of files that were stored anew: a record has the file, or a write is under
// way.
void SsdLane::sort_out_left() {
  for (auto& part : left_) {
    std::erase_if(part, [&](const ObjectName& name) {
      const Record* r = index_.find(name);
      return r && (r->file.bytes > 0 || r->disk == Disk::queued || r->disk == Disk::writing);
    });
  }
  left_.remove_if([](const auto& part) { return part.empty(); });
}

void SsdLane::unlink_left() {
  sort_out_left();
  for (auto& part : std::exchange(left_, {})) unlink(std::move(part));
}

bool SsdLane::some_left() {
  sort_out_left();
  return !left_.empty();
}

// Takes at least `bytes` of least recently used leaves off the SSD's index.
std::vector<ObjectName> SsdLane::take_victims(uint64_t bytes) {
  std::vector<ObjectName> names;
  auto victims = index_.tiers().ssd().next_victims(bytes, true);
  if (victims.keys.empty()) return names;
  for (EntryKey key : victims.keys) {
    Record* r = index_.find_key(key);
    KV_CHECK(r && r->on_ssd());
    lost_.note(r->name);
    names.push_back(r->name);
    note_eviction(env_, *r, Leaves::ssd, !r->ram);
    // An object that had to go is not written again at once.
    records_.lost(*r, true, {Missing::evicted_ssd});
  }
  env_.count.ssd_evicted += names.size();
  env_.event(
      EventKind::ssd_evicted, [] { return ""; }, names.size());
  return names;
}

void SsdLane::write_failed(const ObjectName* name, const Status& status) const {
  bool full = status.code() == StatusCode::resource_exhausted;
  env_.event(full ? EventKind::ssd_full : EventKind::write_failed, [&] {
    return (name ? file_name(*name) : "folders and records") + ": " + status.message();
  });
}

// State for the next start.

void SsdLane::keep_hours(HourBytes written) {
  kept_.written = std::move(written);
  ssd_->keep(kept_);
}

void SsdLane::keep_place(uint16_t scrubbed) {
  kept_.scrubbed = scrubbed;
  ssd_->keep(kept_);
}

void SsdLane::note(std::vector<NotedName> notes, bool synced, std::function<void()> then) {
  if (notes.empty() || !ssd_ || hangs()) {
    if (then) then();
    return;
  }
  run(
      [ssd = ssd_, synced, notes = std::move(notes)] {
        ssd->note(notes);
        return synced ? ssd->checkpoint() : Status();
      },
      [then = std::move(then)](Status) mutable {
        if (then) then();
      });
}

void SsdLane::check_invariants() const {
  watch_.check_invariants();
  for (const auto& part : left_) KV_CHECK(!part.empty());
}

}  // namespace kv
