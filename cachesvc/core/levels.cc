// Levels of paths, their waits, and reads of files that nobody has read.
#include "cachesvc/core/levels.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kFilesOfOneCommit = 4;    // files read at a time
constexpr Milliseconds kAnswerAhead{100};  // before the deadline; at most a tenth of the time

Durability level_of_record(const Record* record) {
  if (!record) return Durability::none;
  switch (record->disk) {
    case Disk::durable:
      return Durability::durable;
    case Disk::renamed:
      return Durability::spilled;
    case Disk::unreadable:
      return Durability::none;
    default:
      return Durability::accepted;
  }
}

// True if nothing under way can raise the record's level. `held`: no write will end soon.
bool is_stuck(const Record* record, bool held, bool no_reads) {
  if (!record) return true;
  if (record->spills()) return held;
  switch (record->disk) {
    case Disk::known:
      return no_reads;
    case Disk::renamed:
    case Disk::durable:
      return false;
    default:
      return true;
  }
}

}  // namespace

void Levels::wait(CommitWait wait) {
  auto own = std::make_shared<CommitWait>(std::move(wait));
  own->failed_syncs = syncer_.failed();
  if (own->call->deadline != Deadline::max()) {
    auto left = own->call->deadline - Clock::now();
    own->answer_at = own->call->deadline - std::min<Clock::duration>(kAnswerAhead, left / 10);
    own->timer = std::make_unique<Timer>(env_.loop, env_.handler([this] { answer(); }));
    own->timer->arm_at(own->answer_at);
  }
  waits_.push_back(std::move(own));
  spiller_.pump();
  answer();
}

// The part of a standing that every path of the model has.
Levels::Standing Levels::standing_of_model(const CommitWait& wait) const {
  Standing out;
  out.level = wait.path.empty() ? Durability::none : Durability::durable;
  out.stuck = !lane_ || lane_.hangs() || wait.failed_syncs != syncer_.failed();
  if (!wait.model->records_durable) {
    out.level = std::min(out.level, Durability::accepted);
    out.stuck |= !wait.model->records_writing;
  }
  return out;
}

// Standing of the whole path: each object costs a search.
Levels::Standing Levels::standing(const CommitWait& wait) {
  Standing out = standing_of_model(wait);
  const bool held = spiller_.held_up();
  const bool no_reads = wait.read == CommitWait::Read::no_room || promoter_.hangs();
  Durability awaited_level = Durability::durable;
  for (size_t i = 0; i < wait.path.size(); ++i) {
    const Record* record = index_.find(wait.path[i]);
    const Durability level = level_of_record(record);
    out.level = std::min(out.level, level);
    out.stuck |= is_stuck(record, held, no_reads);
    out.unread |= record && record->disk == Disk::known;
    if (out.level == Durability::none) break;
    if (level > awaited_level || level == Durability::durable) continue;
    awaited_level = level;
    out.awaited = i;
  }
  return out;
}

// True if the object that the path waits for is where it was, so that the path needs no search.
bool Levels::still_under_way(const CommitWait& wait) {
  if (wait.awaited == SIZE_MAX || standing_of_model(wait).stuck) return false;
  const Record* record = index_.find(wait.path[wait.awaited]);
  if (!record) return false;
  if (wait.awaits_sync) return record->disk == Disk::renamed;
  return record->spills() && !spiller_.held_up();
}

// True if the wait is over.
bool Levels::look(CommitWait& wait, bool& wants_sync) {
  if (wait.call->finished()) return true;
  const bool late = Clock::now() >= wait.answer_at;
  if (!late && still_under_way(wait)) {
    wants_sync |= wait.awaits_sync;
    return false;
  }
  const Standing now = standing(wait);
  wait.reply.level = now.level;
  if (now.level >= wait.wait_for || late || now.stuck) return true;
  wait.awaits_sync = wait.wait_for == Durability::durable && now.level == Durability::spilled;
  wait.awaited = now.unread ? SIZE_MAX : now.awaited;
  wants_sync |= wait.awaits_sync;
  if (now.unread && wait.read == CommitWait::Read::none) wait.read = CommitWait::Read::wanted;
  return false;
}

void Levels::answer() {
  std::list<WaitPtr> done;
  bool wants_sync = false;
  for (auto it = waits_.begin(); it != waits_.end();) {
    auto at = it++;
    if (look(**at, wants_sync)) done.splice(done.end(), waits_, at);
  }
  if (wants_sync) syncer_.schedule();
  for (auto& wait : done) finish(*wait);
  read_paths();
}

void Levels::check_invariants() const {
  KV_CHECK(!reading_);
  for (const WaitPtr& wait : waits_) {
    KV_CHECK(wait->read != CommitWait::Read::wanted);
    KV_CHECK(wait->awaited == SIZE_MAX || wait->awaited < wait->path.size());
    KV_CHECK(!wait->awaits_sync || wait->wait_for == Durability::durable);
  }
}

// Answers a wait. A path without one of its objects has no level; the reply names the lost ones.
void Levels::finish(CommitWait& wait) {
  if (wait.call->finished()) return;
  if (wait.reply.level == Durability::none) {
    for (const PinnedName& p : wait.path) {
      bool gone = level_of_record(index_.find(p)) == Durability::none;
      if (gone) wait.reply.lost.push_back(p.name);
    }
  }
  wait.call->finish(std::move(wait.reply));
}

// Begins reads apart from the loop over all waits: room that is free at once calls answer() again.
void Levels::read_paths() {
  if (std::exchange(reading_, true)) return;
  for (bool again = true; std::exchange(again, false);) {
    for (const WaitPtr& wait : waits_) {
      if (wait->read != CommitWait::Read::wanted) continue;
      read_path(WaitPtr(wait));  // the list may change
      again = true;
      break;
    }
  }
  reading_ = false;
}

// Reads the next files of the path that are unread since the start.
void Levels::read_path(const WaitPtr& wait) {
  wait->read = CommitWait::Read::none;
  size_t under_way = 0;
  std::vector<const Record*> next;
  for (const PinnedName& p : wait->path) {
    const Record* r = index_.find(p);
    if (!r || r->disk != Disk::known) continue;
    if (promoter_.promoting(*r))
      ++under_way;
    else if (next.size() < kFilesOfOneCommit)
      next.push_back(r);
  }
  next.resize(std::min(next.size(), kFilesOfOneCommit - std::min(under_way, kFilesOfOneCommit)));
  std::vector<PinnedName> names;
  Room room;
  for (const Record* r : next) {
    Room one = Promoter::room_for(*r);
    room.share = one.share;
    room.stored += one.stored;
    room.promotion += one.promotion;
    names.push_back({r->name, r->serial});
  }
  if (names.empty()) return;
  wait->read = CommitWait::Read::under_way;
  room_.with_room(room, wait->answer_at,
                  [this, wait, names](Result<std::shared_ptr<RoomCharges>> charges) {
                    wait->read = charges.ok() ? CommitWait::Read::none : CommitWait::Read::no_room;
                    if (charges.ok() && !wait->call->finished()) read_now(names, **charges);
                    answer();
                  });
}

void Levels::read_now(const std::vector<PinnedName>& names, RoomCharges& room) {
  for (const PinnedName& name : names) {
    Record* r = index_.find(name);
    if (!r || r->ram || !r->on_ssd() || promoter_.promoting(*r) || promoter_.hangs()) continue;
    Room one = Promoter::room_for(*r);
    promoter_.promote(*r, room.stored.split(one.stored), room.promotion.split(one.promotion),
                      [](Status) {});
  }
}

}  // namespace kv
