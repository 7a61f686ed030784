// promote: one verified read per object, however many wait for it.
#include <algorithm>
#include <atomic>

#include "cachesvc/core/encode.h"
#include "cachesvc/core/impl.h"
#include "codec/lossless.h"

namespace kv {

struct CacheCore::Impl::ReadJob {
  enum class State : uint8_t { waiting, running, given_up };
  std::shared_ptr<SsdTier> ssd;
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<RamPool> pool;
  ObjectName name;
  Charge stored, promotion;
  PoolBuffer payload;                 ///< of the object, since the header is known
  std::unique_ptr<uint8_t[]> packed;  ///< paid by `promotion`
  std::shared_ptr<const void> held;
  std::atomic<State> state{State::waiting};
  std::atomic<Clock::time_point> began{};  ///< once running
  bool late = false;                       ///< loop only: its promotion has ended without it

  /// Disk. Reads into one pool buffer, unpacks what is packed, checks against the geometry. The
  /// sum is taken on the way, while the bytes are in the processor's cache.
  Result<RamObject> read();
  /// Where the file's payload goes: the object's own buffer, or beside it if some of it is packed.
  Result<std::span<uint8_t>> place(const HeaderView& head);
  /// Returns the sum of what they unpack to.
  Result<Xxh128> unpack_pieces(const std::vector<Piece>& pieces);
  /// True for the first who asks: the reader, or whoever gives it up before it began.
  bool take(State next) {
    State expected = State::waiting;
    return state.compare_exchange_strong(expected, next);
  }
  void release() {
    payload = {};
    packed.reset();
    stored.release();
    promotion.release();
    held.reset();
    ssd.reset();
  }
};

Result<RamObject> CacheCore::Impl::ReadJob::read() {
  KV_ASSIGN_OR_RETURN(FileImage image,
                      ssd->read(name, [this](const HeaderView& head) { return place(head); }));
  Xxh128 sum;
  if (packed) {
    KV_ASSIGN_OR_RETURN(sum, unpack_pieces(image.pieces));
  } else {
    sum = image.placed_sum.value();
  }
  Object object = std::move(image.header);
  KV_RETURN_IF_ERROR(attach_payload(object, std::move(payload).freeze()));
  Status fits = validate(object, *model, *profile);
  if (!fits.ok()) return corruption("does not fit its model: " + fits.message());
  return RamObject{std::make_shared<const Object>(std::move(object)), sum};
}

Result<std::span<uint8_t>> CacheCore::Impl::ReadJob::place(const HeaderView& head) {
  bool again = payload.data() != nullptr && payload.size() == head.unpacked_bytes;
  if (!again) {
    KV_ASSIGN_OR_RETURN(payload, buffer_in_pool(head.unpacked_bytes, *pool, stored));
  }
  uint64_t stored_bytes = 0;
  bool all_raw = true;
  for (const Piece& piece : head.pieces) {
    stored_bytes += piece.bytes.size();
    all_raw &= piece.packing == Packing::raw;
  }
  packed.reset();
  if (all_raw) return std::span(payload.data(), payload.size());
  packed = std::make_unique_for_overwrite<uint8_t[]>(stored_bytes);
  return std::span(packed.get(), stored_bytes);
}

Result<Xxh128> CacheCore::Impl::ReadJob::unpack_pieces(const std::vector<Piece>& pieces) {
  Xxh128Stream sum;
  std::span<uint8_t> rest(payload.data(), payload.size());
  for (const Piece& piece : pieces) {
    auto out = rest.first(piece.unpacked_bytes);
    rest = rest.subspan(out.size());
    if (piece.packing == Packing::raw) {
      std::copy_n(piece.bytes.data(), out.size(), out.data());
    } else {
      auto way = piece.packing == Packing::split ? unpack_split : unpack;
      KV_RETURN_IF_ERROR(way(piece.bytes.span(), out));
    }
    sum.update(out);
  }
  return sum.digest();
}

Room CacheCore::Impl::room_to_promote(const Record& record) const {
  Room room;
  room.stored = RamPool::slab_bytes(record.payload_bytes);
  // At most: what is packed, beside what it unpacks to, and the buffer that it is read through.
  room.promotion = record.file_bytes + record.payload_bytes;
  return room;
}

bool CacheCore::Impl::promoting(const Record& record) const {
  auto it = promotions_.find(record.name);
  return it != promotions_.end() && it->second.serial == record.serial;
}

void CacheCore::Impl::join_promotion(Record& record, std::function<void(Status)> done) {
  promotions_.at(record.name).waiters.push_back(std::move(done));
  ++count_.promotion_joins;
}

void CacheCore::Impl::promote(Record& record, Charge stored, Charge promotion,
                              std::function<void(Status)> done, std::shared_ptr<const void> held) {
  KV_CHECK(record.on_ssd() && !record.ram && record.realm);
  if (promoting(record)) return join_promotion(record, std::move(done));
  Promotion p;
  p.serial = record.serial;
  p.pins = pin_all({&record});  // its ancestors stay with it; the batch pins the hit's others
  p.waiters.push_back(std::move(done));
  auto job = p.job = std::make_shared<ReadJob>();
  job->ssd = ssd_;
  job->model = record.realm->model;
  job->profile = record.realm->profile;
  job->pool = pool_;
  job->name = record.name;
  job->stored = std::move(stored);
  job->promotion = std::move(promotion);
  job->held = std::move(held);
  auto read = task(
      [job]() -> Result<RamObject> {
        job->began = Clock::now();
        if (!job->take(ReadJob::State::running)) {
          return Status(StatusCode::deadline_exceeded, "given up");
        }
        struct End {
          ReadJob& job;
          ~End() { job.release(); }
        } end{*job};
        return job->read();
      },
      [this, job, serial = record.serial](Result<RamObject> result) {
        ++ended_reads_;
        if (!job->late) return promoted(job->name, serial, std::move(result));
        if (--late_reads_ == 0) event(EventKind::hang_over, [] { return "reads"; });
        // Its waiters were answered; what it says of the file may be said of one that is there no
        // more, so that a newer one is only doubted.
        Record* known = find_pinned({job->name, serial});
        if (!known || result.ok()) return;
        if (known->verified() && !known->ram) return records_.doubt(*known);
        lose_file(*known, result.status());
      });
  watch_promotion(record.name, p, options_.io_timeout);
  promotions_[record.name] = std::move(p);
  ++count_.promotions;
  read->submit(disk_);
}

void CacheCore::Impl::watch_promotion(const ObjectName& name, Promotion& p, Milliseconds limit) {
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, limit);
  timer->async_wait([weak = weak_from_this(), name, serial = p.serial,
                     ended = ended_reads_](boost::system::error_code error) {
    auto self = weak.lock();
    if (!error && self && !self->closed_) self->promotion_timeout(name, serial, ended);
  });
  p.timer = std::move(timer);
}

// Its waiters go on without it, if it has run for io_timeout, or waits and no other has ended
// meanwhile. One that has begun keeps what it reserved: its memory is in use.
void CacheCore::Impl::promotion_timeout(const ObjectName& name, uint64_t serial,
                                        uint64_t ended_reads) {
  auto it = promotions_.find(name);
  if (it == promotions_.end() || it->second.serial != serial) return;
  ReadJob& job = *it->second.job;
  if (job.state == ReadJob::State::waiting && ended_reads != ended_reads_) {
    return watch_promotion(name, it->second, options_.io_timeout);
  }
  if (job.take(ReadJob::State::given_up)) {
    job.release();
  } else {
    auto ran = std::chrono::duration_cast<Milliseconds>(Clock::now() - job.began.load());
    if (ran < options_.io_timeout) {
      return watch_promotion(name, it->second, options_.io_timeout - ran);
    }
  }
  Status late(StatusCode::io_error, "");
  (void)if_memory([&] {
    late = {StatusCode::io_error, "the read took longer than io_timeout, " +
                                      std::to_string(options_.io_timeout.count()) + " ms"};
  });
  job.late = true;
  if (++late_reads_ == 1) event(EventKind::hang, [&] { return "a read of " + file_name(name); });
  ++count_.io_timeouts;
  promoted(name, serial, std::move(late));
}

void CacheCore::Impl::promoted(const ObjectName& name, uint64_t serial,
                               Result<RamObject> result) noexcept {
  auto it = promotions_.find(name);
  if (it == promotions_.end() || it->second.serial != serial) return;
  Promotion p = std::move(it->second);
  promotions_.erase(it);
  Record* record = find_pinned({name, serial});
  StatusCode code = record ? result.status().code() : StatusCode::not_found;  // erased meanwhile
  bool kept = if_memory([&] {
    if (record && result.ok()) records_.read(*record, *result);
  });
  if (!kept) code = StatusCode::busy;
  if (record && code != StatusCode::ok) {
    ++count_.promotion_failures;
    if (!lose_file(*record, result.status()) && code != StatusCode::busy) {
      ++count_.read_io_errors;
      event(EventKind::read_failed,
            [&] { return file_name(name) + ": " + result.status().message(); });
      records_.unreadable(*record, Clock::now() + options_.io_backoff);
    }
  }
  p.pins.release();
  for (auto& waiter : p.waiters) {  // without memory what it belongs to is dropped
    (void)if_memory([&] {
      waiter(code == result.status().code() ? result.status() : Status(code, "was erased or busy"));
    });
  }
  check_commit_waits();
  (void)if_memory([&] { keep_ready(); });
}

// True if the read has found that the SSD has no such file, or one that is wrong. Without memory to
// say so it is found again.
bool CacheCore::Impl::lose_file(Record& record, const Status& status) noexcept {
  StatusCode code = status.code();
  // Unsupported: of another version or key; what is stored anew takes its name.
  if (code != StatusCode::corruption && code != StatusCode::not_found &&
      code != StatusCode::unsupported) {
    return false;
  }
  try {
    note_loss(record.name);
    // A file that does not verify is in quarantine already; one that verifies and still does not
    // fit its model goes there now.
    if (code == StatusCode::corruption) {
      on_ssd([ssd = ssd_, name = record.name] { return ssd->quarantine(name); }, [](Status) {});
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (code == StatusCode::corruption) {
    ++count_.quarantined;
    event(EventKind::quarantined, [&] { return file_name(record.name) + ": " + status.message(); });
  }
  lose(record);
  return true;
}

// Before lose(): what is being read in the background may say that it is there.
void CacheCore::Impl::note_loss(const ObjectName& name) {
  if (reading_files_ || !unplaced_.empty()) lost_meanwhile_.insert(name);
}

// The SSD has it no longer: it is written again from RAM, or gone.
void CacheCore::Impl::lose(Record& record) noexcept {
  const bool in_ram = static_cast<bool>(record.ram), was_stored = record.on_ssd();
  records_.lost(record);
  if (!in_ram || !was_stored) return;
  if (!if_memory([&] { enqueue_spill(record); })) {
    some_unqueued_ = true;
    spill_wake_->ask();
  }
  pump_spill();
}

}  // namespace kv
