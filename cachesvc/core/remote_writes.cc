// The queue of writes, its order and pace; erases.
#include "cachesvc/core/remote_writes.h"

#include <algorithm>
#include <utility>

#include "cachesvc/core/to_loop.h"

namespace kv {
namespace {

constexpr size_t kMaxWaiting = 8192;    // names; the one that waits longest goes
constexpr size_t kAtOnce = 2;           // puts under way
constexpr size_t kLookedAt = 32;        // of those that wait longest, for one that goes first
constexpr size_t kErasedAtOnce = 2048;  // names of one question (kMaxRemoteNames)
constexpr auto kPutTime = std::chrono::seconds(10);
constexpr auto kEraseTime = std::chrono::seconds(10);
constexpr auto kFirstPause = std::chrono::milliseconds(200);
constexpr auto kLongestPause = std::chrono::seconds(10);
constexpr auto kNoMemoryPause = std::chrono::milliseconds(500);

// It was fetched already, or several continue it.
bool goes_first(const Record& r) {
  return r.use.fetches > 0 || (is_main(r.name.kind) && r.realm->tree.child_count(r.node) > 1);
}

bool may_succeed_later(StatusCode code) {
  return code == StatusCode::unavailable || code == StatusCode::deadline_exceeded ||
         code == StatusCode::busy;
}

}  // namespace

RemoteWrites::RemoteWrites(Env& env, ObjectIndex& index, SsdLane& lane)
    : env_(env),
      index_(index),
      lane_(lane),
      tier_(env.options.remote.tier),
      timer_(env.loop, env.handler([this] { pump(); })) {
  if (!tier_) return;
  auto charge = env.pool->try_charge(ChargeKind::spill, kMaxWaiting * sizeof(Waiting));
  if (charge) queue_charge_ = std::move(*charge);
}

void RemoteWrites::stored(const Record& record) {
  if (queue_charge_.bytes() == 0 || record.shared || !remote_name(record)) return;
  if (queue_.size() == kMaxWaiting) {
    queue_.pop_front();
    ++counts_.dropped;
  }
  queue_.push_back({{record.name, record.serial}});
  ++counts_.queued;
  pump();
}

void RemoteWrites::pause(Clock::duration time) {
  next_at_ = std::max(next_at_, Clock::now() + time);
}

// Takes every step that is possible.
void RemoteWrites::pump() {
  while (!queue_.empty() && under_way_ < kAtOnce && erasing_.empty() && !env_.draining()) {
    const auto now = Clock::now();
    if (now < next_at_) return timer_.arm_in(next_at_ - now);
    const Waiting next = take_next();
    if (!begin(next)) return timer_.arm_in(kNoMemoryPause);
  }
}

// The longest waiting one, unless one of the next goes first; tails, which the next turn
// supersedes, behind what is no tail.
RemoteWrites::Waiting RemoteWrites::take_next() {
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(std::min(queue_.size(), kLookedAt));
  auto best = std::find_if(queue_.begin(), end, [this](const Waiting& each) {
    const Record* r = index_.find(each.which);
    return r != nullptr && r->realm != nullptr && goes_first(*r);
  });
  if (best == end) {
    best = std::find_if(queue_.begin(), end, [](const Waiting& each) {
      return each.which.name.kind != ObjectKind::tail;
    });
  }
  if (best == end) best = queue_.begin();
  const Waiting next = *best;
  queue_.erase(best);
  return next;
}

// False: no memory; it waits again.
bool RemoteWrites::begin(const Waiting& next) {
  const Record* r = index_.find(next.which);
  const auto name = r && r->on_ssd() ? remote_name(*r) : std::nullopt;
  if (!name) return true;  // it has gone meanwhile
  auto room = env_.pool->try_charge(ChargeKind::spill, r->file.bytes);
  if (!room) {
    queue_.push_front(next);
    return false;
  }
  if (const uint64_t rate = env_.options.remote.write_bytes_per_second; rate > 0) {
    const double seconds = static_cast<double>(r->file.bytes) / static_cast<double>(rate);
    next_at_ = std::max(next_at_, Clock::now()) +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  ++under_way_;
  auto charge = std::make_shared<Charge>(std::move(*room));
  env_.on_disk([ssd = lane_.ssd(), object = name->object] { return ssd->read(object); },
               [this, next, name = *name, charge](Result<FileImage> image) {
                 if (!image.ok()) return ended(next, image.status(), 0);
                 put(next, name, std::move(*image), charge);
               });
  return true;
}

void RemoteWrites::put(const Waiting& next, const RemoteName& name, FileImage image,
                       std::shared_ptr<Charge> charge) {
  const uint64_t bytes = image.stored_bytes();
  auto done = to_loop<Result<RemotePut>>(
      env_, [this, next, bytes, charge = std::move(charge)](const Result<RemotePut>& result) {
        ended(next, result, bytes);
      });
  tier_->put(std::move(image), name, Clock::now() + kPutTime, std::move(done));
}

void RemoteWrites::ended(const Waiting& next, const Result<RemotePut>& result, uint64_t bytes) {
  Record* r = index_.find(next.which);
  if (result.ok()) {
    failed_pause_ = {};
    if (r) r->shared = true;
    ++(*result == RemotePut::stored ? counts_.written : counts_.existed);
    if (*result == RemotePut::stored) counts_.bytes += bytes;
  } else {
    const bool again = may_succeed_later(result.status().code());
    if (again) {
      failed_pause_ = std::clamp<Clock::duration>(failed_pause_ * 2, kFirstPause, kLongestPause);
      pause(failed_pause_);
    }
    if (again && !next.again && r != nullptr && queue_.size() < kMaxWaiting) {
      queue_.push_front({next.which, true});
    } else {
      ++counts_.failed;
    }
  }
  one_ended();
}

void RemoteWrites::one_ended() {
  if (--under_way_ == 0) {
    for (auto& step : std::exchange(quiet_, {})) step();
  }
  pump();
}

void RemoteWrites::when_quiet(std::function<void()> step) {
  if (under_way_ == 0) return step();
  quiet_.push_back(std::move(step));
}

void RemoteWrites::begin_erase(const std::string& ns) {
  if (!tier_) return;
  erasing_.insert(ns);
  ++erases_[place_of(ns)];
}

void RemoteWrites::end_erase(const std::string& ns) {
  if (!tier_) return;
  erasing_.erase(erasing_.find(ns));
  ++erases_[place_of(ns)];
  pump();
}

struct RemoteWrites::Erasing {
  std::vector<RemoteName> names;
  size_t next = 0;
  RemoteErased sum{};
  std::function<void(Status)> done;
};

void RemoteWrites::erase(std::vector<RemoteName> names, uint64_t unnamed,
                         std::function<void(Status)> done) {
  auto erasing =
      std::make_shared<Erasing>(Erasing{std::move(names), 0, {0, unnamed}, std::move(done)});
  when_quiet([this, erasing] { erase_some(erasing); });
}

void RemoteWrites::erase_some(const std::shared_ptr<Erasing>& erasing) {
  if (erasing->next == erasing->names.size()) {
    return answer(erasing->sum, "objects", erasing->done);
  }
  const size_t end = std::min(erasing->names.size(), erasing->next + kErasedAtOnce);
  const auto at = erasing->names.begin();
  std::vector<RemoteName> some(at + static_cast<ptrdiff_t>(erasing->next),
                               at + static_cast<ptrdiff_t>(end));
  erasing->next = end;
  tier_->erase(std::move(some), Clock::now() + kEraseTime,
               to_loop<RemoteErased>(env_, [this, erasing](const RemoteErased& erased) {
                 erasing->sum.erased += erased.erased;
                 erasing->sum.unreached += erased.unreached;
                 erase_some(erasing);
               }));
}

void RemoteWrites::erase_all(const std::string& ns, std::function<void(Status)> done) {
  when_quiet([this, space = remote_space(ns), done = std::move(done)] {
    tier_->erase_all(space, Clock::now() + kEraseTime,
                     to_loop<RemoteErased>(env_, [this, done](const RemoteErased& erased) {
                       answer(erased, "nodes", done);
                     }));
  });
}

void RemoteWrites::answer(const RemoteErased& erased, const char* what,
                          const std::function<void(Status)>& done) {
  counts_.erased += erased.erased;
  counts_.unreached += erased.unreached;
  if (erased.unreached == 0) return done({});
  done({StatusCode::unavailable,
        "gone here, but " + std::to_string(erased.unreached) + " " + what +
            " of the shared tier could not be reached: what they have is there until it expires"});
}

void RemoteWrites::check_invariants() const {
  KV_CHECK(queue_.size() <= kMaxWaiting && under_way_ <= kAtOnce);
  KV_CHECK(tier_ || queue_.empty());
}

}  // namespace kv
