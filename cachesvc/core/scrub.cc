// The scrubber: reads the files of the SSD one by one, at scrub_bytes_per_second, in the order of
// their names and round again, so that one that rots while nobody asks for it is found. Damaged
// objects go to quarantine and are a miss, or are written anew from RAM; damaged records are
// written anew. It gives way to promotes, to whoever waits for RAM, and to a start and a device
// that has its hands full. (SsdTier::scrub, of an erase, is another thing: it wipes.)
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "storage/file_names.h"

namespace kv {
namespace {

constexpr size_t kFilesAtATime = 256;       // listed at once; read one after another
constexpr Milliseconds kGiveWay{100};       // until it asks again
constexpr uint32_t kGiveWayAtMost = 100;    // times for one file; then it is read all the same
constexpr Milliseconds kPassPause{60'000};  // between two passes, however small the store
constexpr uint64_t kLeastBytes = 4096;      // that a file counts as

}  // namespace

void CacheCore::Impl::scrub_in(Clock::duration pause) noexcept {
  if (closed_ || draining_) return;
  scrub_stopped_ = !if_memory([&] {
    auto timer = std::make_unique<boost::asio::steady_timer>(loop_, pause);
    timer->async_wait([weak = weak_from_this()](boost::system::error_code error) {
      auto self = weak.lock();
      if (error || !self || self->closed_) return;
      if (!if_memory([&] { self->scrub_next(); })) self->scrub_in(kGiveWay);
    });
    scrub_timer_ = std::move(timer);
  });
}

void CacheCore::Impl::scrub_next() {
  if (draining_) return;
  if (scrub_files_.empty()) return scrub_list();
  const ListedFile& file = scrub_files_.front();
  bool others = recovery_.unread > 0 || !promotions_.empty() || !room_waiters_.empty();
  bool patient = scrub_waited_ < kGiveWayAtMost;
  bool wait = reads_hang() || writes_hang() || (others && patient);
  std::optional<Charge> memory;
  if (!wait) memory = pool_->try_charge(ChargeKind::promotion, file.info.bytes);
  if (wait || (!memory && patient)) {
    ++scrub_waited_;
    return scrub_in(kGiveWay);
  }
  scrub_waited_ = 0;
  std::string name = file.name;
  uint64_t bytes = file.info.bytes;
  scrub_files_.pop_front();
  scrub_after_ = name;
  if (!memory) return scrub_in({});  // too large for what RAM has left: in the next pass
  scrub_pace_.spent(std::max(bytes, kLeastBytes), Clock::now());
  auto parsed = parse_file_name(name);
  Record* r = is_record(parsed->kind) ? nullptr : index_.find(parsed->object);
  PinnedName which{parsed->object, r ? r->serial : 0};
  auto charge = std::make_shared<Charge>(std::move(*memory));
  auto verify = [ssd = ssd_, name, charge] {
    Status status = ssd->verify(name);
    charge->release();
    return status;
  };
  auto verified = [this, which, kind = parsed->kind, bytes, name](Status status) {
    ++count_.scrubbed_files;
    count_.scrubbed_bytes += bytes;
    auto reason = [&] { return name + ": " + status.message(); };
    if (Record* known = status.ok() ? find_pinned(which) : nullptr) {
      records_.verified(*known);
      check_commit_waits();
    }
    if (status.code() == StatusCode::corruption) {
      event(EventKind::quarantined, reason);
      (void)if_memory([&] { scrub_found(kind, which); });  // or its next use finds it
    }
    if (status.code() == StatusCode::io_error) event(EventKind::read_failed, reason);
    auto now = Clock::now();
    scrub_in(scrub_pace_.next(now) - now);
  };
  task(std::move(verify), std::move(verified))->submit(disk_);
}

void CacheCore::Impl::scrub_list() {
  auto list = [ssd = ssd_, after = scrub_after_] { return ssd->files_after(after, kFilesAtATime); };
  auto listed = [this](Result<std::vector<ListedFile>> files) {
    bool kept = files.ok() && if_memory([&] { scrub_files_.assign(files->begin(), files->end()); });
    if (!kept) return scrub_in(options_.io_backoff);
    if (!scrub_files_.empty()) return scrub_in({});
    if (!scrub_after_.empty()) ++count_.scrub_passes;
    scrub_after_.clear();
    scrub_in(kPassPause);
  };
  task(std::move(list), std::move(listed))->submit(disk_);
}

// It is in quarantine by now.
void CacheCore::Impl::scrub_found(FileKind kind, const PinnedName& which) {
  ++count_.scrub_damaged;
  ++count_.quarantined;
  if (is_record(kind)) return rewrite_record(kind, which.name.id);
  Record* r = find_pinned(which);
  if (!r) return;
  if (r->on_ssd()) note_loss(r->name);
  lose(*r);
}

void CacheCore::Impl::rewrite_record(FileKind kind, const Id& id) {
  for (auto& [key, model] : models_) {
    if (!model->realm || model->records_writing) continue;
    Id own =
        kind == FileKind::profile ? model->realm->realm.profile : model_id(key.first, key.second);
    if (own != id) continue;
    model->records_durable = false;  // without memory now: at the next spill or open
    write_records(*model);
  }
  if (kind != FileKind::profile) return;
  for (const auto& realm : index_.realms()) {  // that no model has in force, but objects need
    if (realm->realm.profile != id || realm->in_force) continue;
    on_ssd([ssd = ssd_, profile = realm->profile] { return ssd->put_profile(*profile); },
           [](Status) {});
    return;
  }
}

}  // namespace kv
