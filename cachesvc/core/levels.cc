// levels: what a commit is told of its path's way to the SSD, and the wait for it. `spilled` and
// `durable` are said of files that were written or read since the start: a commit that asks for one
// of them has the others read, a few at a time, as a promotion reads them.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr size_t kFilesOfOneCommit = 4;    // files of one commit
constexpr Milliseconds kAnswerAhead{100};  // at most a tenth of the time: before the deadline

Durability level_of(const Record& record) {
  switch (record.disk) {
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
bool stuck(const Record& record, bool held, bool no_reads) {
  switch (record.disk) {
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

void CacheCore::Impl::wait_for_level(CommitWait wait) {
  auto own = std::make_shared<CommitWait>(std::move(wait));
  if (const auto& timer = own->call->timer) {
    auto left = timer->expiry() - Clock::now();
    own->answer_at = timer->expiry() - std::min<Clock::duration>(kAnswerAhead, left / 10);
    own->timer = std::make_unique<Timer>(loop_, [this] { check_commit_waits(); });
    own->timer->arm_at(own->answer_at);
  }
  commit_waits_.push_back(std::move(own));
  pump_spill();
  check_commit_waits();
}

// The lowest level over the whole path and the records that it needs.
Durability CacheCore::Impl::level_of(const CommitWait& wait) {
  Durability level = wait.path.empty() ? Durability::none : Durability::durable;
  for (const PinnedName& p : wait.path) {
    const Record* r = find_pinned(p);
    level = std::min(level, r ? kv::level_of(*r) : Durability::none);
  }
  if (!wait.model->records_durable) level = std::min(level, Durability::accepted);
  return level;
}

// True if nothing under way can raise the level.
bool CacheCore::Impl::stuck(const CommitWait& wait) {
  if (!ssd_ || writes_hang() || wait.failed_syncs != failed_syncs_) return true;
  if (!wait.model->records_durable && !wait.model->records_writing) return true;
  const bool held = held_up(), no_reads = wait.no_room || reads_hang();
  return std::any_of(wait.path.begin(), wait.path.end(), [&](const PinnedName& p) {
    const Record* r = find_pinned(p);
    return !r || kv::stuck(*r, held, no_reads);
  });
}

// The next files of the path that nobody has read since the start; a few at a time.
void CacheCore::Impl::read_path(const std::shared_ptr<CommitWait>& wait) {
  if (wait->reading || wait->no_room) return;
  auto next = [this](const PinnedName& p) {
    const Record* r = find_pinned(p);
    return r && r->disk == Disk::known ? r : nullptr;
  };
  size_t under_way = 0;
  for (const PinnedName& p : wait->path) {
    const Record* r = next(p);
    under_way += r && promoting(*r);
  }
  std::vector<PinnedName> unread;
  Room room;
  for (const PinnedName& p : wait->path) {
    if (under_way + unread.size() >= kFilesOfOneCommit) break;
    const Record* r = next(p);
    if (!r || promoting(*r)) continue;
    Room one = room_to_promote(*r);
    room.stored += one.stored;
    room.promotion += one.promotion;
    unread.push_back(p);
  }
  if (unread.empty()) return;
  wait->reading = true;
  with_room(room, wait->answer_at,
            [this, wait, unread](Result<std::shared_ptr<RoomCharges>> charges) {
              wait->reading = false;
              wait->no_room = !charges.ok();
              if (charges.ok() && !wait->call->finished()) read_now(unread, **charges);
              check_commit_waits();
            });
}

// Whoever waits for them is told when each has been read.
void CacheCore::Impl::read_now(const std::vector<PinnedName>& names, RoomCharges& room) {
  for (const PinnedName& p : names) {
    Record* r = find_pinned(p);
    if (!r || r->ram || !r->on_ssd() || promoting(*r) || reads_hang()) continue;
    Room one = room_to_promote(*r);
    promote(*r, room.stored.split(one.stored), room.promotion.split(one.promotion), [](Status) {});
  }
}

// What the level says of: a path without one of its objects is nowhere.
void CacheCore::Impl::answer_commit(CommitWait& wait) {
  wait.reply.level = level_of(wait);
  for (const PinnedName& p : wait.path) {
    const Record* r = find_pinned(p);
    bool gone = !r || kv::level_of(*r) == Durability::none;
    if (gone && wait.reply.level == Durability::none) wait.reply.lost.push_back(p.name);
  }
  wait.call->finish(std::move(wait.reply));
}

void CacheCore::Impl::check_commit_waits() noexcept {
  std::list<std::shared_ptr<CommitWait>> done, reading;
  bool wants_sync = false;
  const auto now = Clock::now();
  for (auto it = commit_waits_.begin(); it != commit_waits_.end();) {
    auto at = it++;
    CommitWait& wait = **at;
    Durability level = level_of(wait);
    bool ends = level >= wait.wait_for || now >= wait.answer_at || stuck(wait);
    if (wait.call->finished() || ends) {
      done.splice(done.end(), commit_waits_, at);
      continue;
    }
    wants_sync |= wait.wait_for == Durability::durable && level == Durability::spilled;
    if (level == Durability::accepted && !wait.reading) wait.wants_read = true;
  }
  if (wants_sync && !if_memory([&] { schedule_sync(); })) pump_later();
  for (auto& wait : done) (void)if_memory([&] { answer_commit(*wait); });
  read_paths();
}

// Apart from the look at all of them: room that is there at once comes back here.
void CacheCore::Impl::read_paths() noexcept {
  if (std::exchange(reading_paths_, true)) return;
  bool again = true;
  while (std::exchange(again, false)) {
    for (const auto& wait : commit_waits_) {
      if (!std::exchange(wait->wants_read, false)) continue;
      auto own = wait;  // the list may change
      if (!if_memory([&] { read_path(own); })) own->no_room = true;
      again = true;
      break;
    }
  }
  reading_paths_ = false;
}

}  // namespace kv
