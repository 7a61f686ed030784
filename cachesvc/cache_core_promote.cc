// promote: one verified read per object, however many wait for it.
#include "cachesvc/cache_core_encode.h"
#include "cachesvc/cache_core_impl.h"
#include "codec/lossless.h"

namespace kv {
namespace {

struct ReadJob {
  std::shared_ptr<SsdTier> ssd;
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const Profile> profile;
  std::shared_ptr<RamPool> pool;
  ObjectName name;
  Charge stored, promotion;
};

// Worker. Reads, unpacks into one pool buffer, checks against the geometry.
Result<ObjectPtr> read_object(ReadJob& job) {
  KV_ASSIGN_OR_RETURN(FileImage image, job.ssd->read(job.name));
  std::vector<std::vector<uint8_t>> unpacked;
  std::vector<std::span<const uint8_t>> parts;
  unpacked.reserve(image.pieces.size());
  for (const Piece& piece : image.pieces) {
    if (piece.packing == Packing::raw) {
      parts.push_back(piece.bytes.span());
      continue;
    }
    KV_ASSIGN_OR_RETURN(auto bytes, unpack(piece.bytes.span(), piece.unpacked_bytes));
    unpacked.push_back(std::move(bytes));
    parts.push_back(unpacked.back());
  }
  KV_ASSIGN_OR_RETURN(Object object,
                      into_pool(std::move(image.header), parts, *job.pool, job.stored));
  Status fits = validate(object, *job.model, *job.profile);
  if (!fits.ok()) return corruption("does not fit its model: " + fits.message());
  return ObjectPtr(std::make_shared<const Object>(std::move(object)));
}

}  // namespace

Room CacheCore::Impl::room_to_promote(const Record& record) const {
  Room room;
  room.stored = RamPool::slab_bytes(record.payload_bytes);
  // The file as read, and what its packed pieces unpack to.
  room.promotion = record.file_bytes + record.payload_bytes;
  return room;
}

bool CacheCore::Impl::promoting(const Record& record) const {
  auto it = promotions_.find(record.name);
  return it != promotions_.end() && it->second.serial == record.serial;
}

void CacheCore::Impl::join_promotion(Record& record, std::function<void(Status)> done) {
  ++count_.promotion_joins;
  promotions_.at(record.name).waiters.push_back(std::move(done));
}

void CacheCore::Impl::promote(Record& record, Charge stored, Charge promotion,
                              std::function<void(Status)> done) {
  KV_CHECK(record.on_ssd() && !record.ram && record.realm);
  if (promoting(record)) return join_promotion(record, std::move(done));
  ++count_.promotions;
  Promotion& p = promotions_[record.name];
  p.serial = record.serial;
  p.pins = pin_all(index_.path_to(record));
  p.waiters.push_back(std::move(done));
  auto job = std::make_shared<ReadJob>();
  *job = {ssd_, record.realm->model, record.realm->profile, pool_, record.name, std::move(stored),
          std::move(promotion)};
  on_worker([job] {
    auto result = read_object(*job);
    job->stored.release();
    job->promotion.release();
    return result;
  }, [this, name = record.name, serial = record.serial](Result<ObjectPtr> result) {
    promoted(name, serial, std::move(result));
  });
}

void CacheCore::Impl::promoted(const ObjectName& name, uint64_t serial, Result<ObjectPtr> result) {
  auto it = promotions_.find(name);
  if (it == promotions_.end() || it->second.serial != serial) return;
  Promotion p = std::move(it->second);
  promotions_.erase(it);
  Record* record = find_pinned({name, serial});
  Status status = result.status();
  if (!record) {
    status = {StatusCode::not_found, "erased while it was read"};
  } else if (result.ok()) {
    if (!record->ram) index_.set_ram(*record, *result);
  } else {
    ++count_.promotion_failures;
    if (status.code() == StatusCode::corruption) {
      ++count_.quarantined;
      // A file that does not verify is in quarantine already; one that verifies and still does not
      // fit its model goes there now.
      on_ssd([ssd = ssd_, name] { return ssd->quarantine(name); }, [](Status) {});
      lose(*record);
    } else if (status.code() == StatusCode::not_found) {
      lose(*record);
    } else if (status.code() != StatusCode::busy) {
      ++count_.read_io_errors;
      record->blocked_until = Clock::now() + options_.io_backoff;
    }
  }
  unpin_all(p.pins);
  for (auto& waiter : p.waiters) waiter(status);
}

// The SSD has it no longer; without a copy in RAM it is gone.
void CacheCore::Impl::lose(Record& record) {
  index_.drop_ssd(record);
  if (!record.ram) index_.remove(record);
}

}  // namespace kv
