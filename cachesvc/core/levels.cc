// Levels of paths, their waits, and reads of files that nobody has read.
#include "cachesvc/core/levels.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kFilesOfOneCommit = 4;    // read at a time
constexpr Milliseconds kAnswerAhead{100};  // at most a tenth of the time: before the deadline

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

// True if nothing under way can raise the level of this one. `held`: no write will end soon.
bool is_stuck(const Record* record, bool held, bool no_reads) {
  if (!record) return true;
  switch (record->disk) {
    case Disk::waiting:
    case Disk::queued:
    case Disk::writing:
      return held;
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

Durability Levels::level_of(const CommitWait& wait) {
  Durability level = wait.path.empty() ? Durability::none : Durability::durable;
  if (!wait.model->records_durable) level = std::min(level, Durability::accepted);
  for (const PinnedName& p : wait.path) {
    level = std::min(level, level_of_record(index_.find(p)));
    if (level == Durability::none) break;
  }
  return level;
}

bool Levels::stuck(const CommitWait& wait) {
  if (!lane_ || lane_.hangs() || wait.failed_syncs != syncer_.failed()) return true;
  if (!wait.model->records_durable && !wait.model->records_writing) return true;
  const bool held = spiller_.held_up();
  const bool no_reads = wait.read == CommitWait::Read::no_room || promoter_.hangs();
  return std::any_of(wait.path.begin(), wait.path.end(),
                     [&](const PinnedName& p) { return is_stuck(index_.find(p), held, no_reads); });
}

// True if the wait is over.
bool Levels::look(CommitWait& wait, bool& wants_sync) {
  if (wait.call->finished()) return true;
  Durability level = level_of(wait);
  if (level >= wait.wait_for || Clock::now() >= wait.answer_at || stuck(wait)) return true;
  wants_sync |= wait.wait_for == Durability::durable && level == Durability::spilled;
  const bool may_read = wait.read == CommitWait::Read::none;
  if (level == Durability::accepted && may_read) wait.read = CommitWait::Read::wanted;
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

// A path without one of its objects is nowhere; the reply says which.
void Levels::finish(CommitWait& wait) {
  if (wait.call->finished()) return;
  wait.reply.level = level_of(wait);
  if (wait.reply.level == Durability::none) {
    for (const PinnedName& p : wait.path) {
      bool gone = level_of_record(index_.find(p)) == Durability::none;
      if (gone) wait.reply.lost.push_back(p.name);
    }
  }
  wait.call->finish(std::move(wait.reply));
}

// Apart from the look at all of them: room that is there at once comes back here.
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

// The next files of the path that nobody has read since the start.
void Levels::read_path(const WaitPtr& wait) {
  wait->read = CommitWait::Read::none;
  auto unread = [this](const PinnedName& p) {
    const Record* r = index_.find(p);
    return r && r->disk == Disk::known ? r : nullptr;
  };
  size_t under_way = 0;
  for (const PinnedName& p : wait->path) {
    const Record* r = unread(p);
    under_way += r && promoter_.promoting(*r);
  }
  std::vector<PinnedName> names;
  Room room;
  for (const PinnedName& p : wait->path) {
    if (under_way + names.size() >= kFilesOfOneCommit) break;
    const Record* r = unread(p);
    if (!r || promoter_.promoting(*r)) continue;
    Room one = Promoter::room_for(*r);
    room.share = one.share;
    room.stored += one.stored;
    room.promotion += one.promotion;
    names.push_back(p);
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
