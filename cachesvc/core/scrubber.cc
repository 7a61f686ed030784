// The scrubber's steps, and its handling of damage.
#include "cachesvc/core/scrubber.h"

#include <algorithm>

namespace kv {
namespace {

constexpr size_t kFilesAtATime = 256;       // listed at once; read one after another
constexpr Milliseconds kGiveWay{100};       // pause before it asks again
constexpr uint32_t kGiveWayAtMost = 100;    // times per file; then it is read all the same
constexpr Milliseconds kPassPause{60'000};  // pause between two passes, however small the store
constexpr uint64_t kLeastBytes = 4096;      // the least that a file counts as

// The scrubber's place: names of files begin with their id. Two bytes of it tell nobody what was
// stored, even after it was erased.
uint16_t place_of(const std::string& file) {
  auto name = parse_file_name(file);
  if (!name) return 0;
  const Id& id = name->object.id;
  return static_cast<uint16_t>(id.bytes[0] << 8 | id.bytes[1]);
}
std::string first_name_at(uint16_t place) {
  if (place == 0) return {};
  ObjectName name{ObjectKind::block, {}, 0, 0, 0};
  name.id.bytes[0] = static_cast<uint8_t>(place >> 8);
  name.id.bytes[1] = static_cast<uint8_t>(place);
  return file_name(name);
}

}  // namespace

Scrubber::Scrubber(Env& env, ObjectIndex& index, Records& records, SsdLane& lane,
                   const Found& found, ModelRecords& model_records, Spiller& spiller, RamRoom& room,
                   Promoter& promoter)
    : env_(env),
      index_(index),
      records_(records),
      lane_(lane),
      found_(found),
      model_records_(model_records),
      spiller_(spiller),
      room_(room),
      promoter_(promoter),
      pace_(env.options.scrub_bytes_per_second, 0),
      timer_(env.loop, env.handler([this] { next(); })) {}

void Scrubber::begin(uint16_t place) {
  if (!lane_ || env_.options.scrub_bytes_per_second == 0) return;
  after_ = first_name_at(place);
  next_in({});
}

void Scrubber::next_in(Clock::duration pause) {
  if (!env_.draining()) timer_.arm_in(pause);
}

bool Scrubber::gives_way() const {
  if (promoter_.hangs() || lane_.hangs()) return true;
  bool others = !found_.all_known() || !promoter_.idle() || room_.wanted();
  return others && waited_ < kGiveWayAtMost;
}

void Scrubber::next() {
  if (env_.draining()) return;
  if (files_.empty()) return list();
  std::optional<Charge> memory;
  const bool wait = gives_way();
  if (!wait) memory = env_.pool->try_charge(ChargeKind::promotion, files_.front().info.bytes);
  if (wait || (!memory && waited_ < kGiveWayAtMost)) {
    ++waited_;
    return next_in(kGiveWay);
  }
  waited_ = 0;
  ListedFile file = std::move(files_.front());
  files_.pop_front();
  after_ = file.name;
  lane_.keep_place(place_of(after_));
  if (!memory) return next_in({});  // too large for RAM now: left to the next pass
  verify(file, std::move(*memory));
}

void Scrubber::verify(const ListedFile& file, Charge memory) {
  const uint64_t bytes = file.info.bytes;
  pace_.spent(std::max(bytes, kLeastBytes), Clock::now());
  auto parsed = parse_file_name(file.name);
  Record* r = is_record(parsed->kind) ? nullptr : index_.find(parsed->object);
  PinnedName which{parsed->object, r ? r->serial : 0};
  auto charge = std::make_shared<Charge>(std::move(memory));
  env_.on_disk(
      [ssd = lane_.ssd(), name = file.name, charge] {
        Status status = ssd->verify(name);
        charge->release();
        return status;
      },
      [this, which, kind = parsed->kind, bytes, name = file.name](Status status) {
        ++env_.count.scrubbed_files;
        env_.count.scrubbed_bytes += bytes;
        verified(kind, which, name, status);
        auto now = Clock::now();
        next_in(pace_.next(now) - now);
      });
}

void Scrubber::verified(FileKind kind, const PinnedName& which, const std::string& name,
                        const Status& status) {
  auto reason = [&] { return name + ": " + status.message(); };
  if (Record* known = status.ok() ? index_.find(which) : nullptr) {
    records_.read(*known, {});
    env_.progress();
  }
  if (status.code() == StatusCode::corruption) {
    env_.event(EventKind::quarantined, reason);
    damaged(kind, which);
  }
  if (status.code() == StatusCode::io_error) env_.event(EventKind::read_failed, reason);
}

void Scrubber::check_invariants() const {
  KV_CHECK(files_.size() <= kFilesAtATime);
  const std::string* before = &after_;
  for (const ListedFile& file : files_) {
    KV_CHECK(*before < file.name);
    before = &file.name;
  }
}

void Scrubber::list() {
  auto files = [ssd = lane_.ssd(), after = after_] {
    return ssd->files_after(after, kFilesAtATime);
  };
  env_.on_disk(files, [this](Result<std::vector<ListedFile>> listed) {
    if (!listed.ok()) return next_in(env_.options.io_backoff);
    files_.assign(listed->begin(), listed->end());
    if (!files_.empty()) return next_in({});
    if (!after_.empty()) ++env_.count.scrub_passes;
    after_.clear();
    lane_.keep_place(0);
    next_in(kPassPause);
  });
}

// Follows the damage of a file, which is in quarantine by now.
void Scrubber::damaged(FileKind kind, const PinnedName& which) {
  ++env_.count.scrub_damaged;
  ++env_.count.quarantined;
  if (is_record(kind)) {
    return model_records_.rewrite(kind == FileKind::profile, which.name.id);
  }
  Record* r = index_.find(which);
  if (!r) return;
  if (r->on_ssd()) lane_.lost().note(r->name);
  spiller_.file_lost(*r, Missing::damaged);
}

}  // namespace kv
