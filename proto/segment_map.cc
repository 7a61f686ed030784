// Mappings of segments, and their checks before any byte is used.
#include "proto/segment_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace kv {
namespace {

// The lease of a reply: its slots, with the generations that the service named.
class MappedLease final : public LeaseCheck {
 public:
  struct Slot {
    const std::atomic<uint64_t>* counter;
    uint64_t generation;
  };
  MappedLease(uint64_t number, std::shared_ptr<EndedLeases> ended)
      : number_(number), ended_(std::move(ended)) {}
  ~MappedLease() override { ended_->add(number_); }
  MappedLease(const MappedLease&) = delete;  // ends once
  MappedLease& operator=(const MappedLease&) = delete;
  void add(ObjectPtr object, Slot slot) {
    objects_.push_back(std::move(object));
    slots_.push_back(slot);
  }
  bool valid() const override {
    std::atomic_thread_fence(std::memory_order_acquire);  // reads come before this
    return std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) {
      return s.counter->load(std::memory_order_relaxed) == s.generation;
    });
  }

 private:
  const uint64_t number_;
  const std::shared_ptr<EndedLeases> ended_;
  std::vector<ObjectPtr> objects_;  // they keep their mappings
  std::vector<Slot> slots_;
};

Status bad(const std::string& what) { return corruption("fetch_mapped: " + what); }

}  // namespace

SegmentMapping::~SegmentMapping() { ::munmap(const_cast<uint8_t*>(begin_), bytes_); }

void EndedLeases::add(uint64_t lease) {
  std::lock_guard lock(mutex_);
  leases_.push_back(lease);
}

std::vector<uint64_t> EndedLeases::take() {
  std::lock_guard lock(mutex_);
  const size_t count = std::min<size_t>(leases_.size(), kMaxEndedLeases);
  std::vector<uint64_t> out(leases_.begin(), leases_.begin() + static_cast<ptrdiff_t>(count));
  leases_.erase(leases_.begin(), leases_.begin() + static_cast<ptrdiff_t>(count));
  return out;
}

Status SegmentMap::add(const SegmentAnnounced& announced, int fd) {
  const std::string what = "segment " + std::to_string(announced.segment) + ": ";
  if (segments_.contains(announced.segment)) return corruption(what + "announced twice");
  struct stat st {};
  if (::fstat(fd, &st) != 0 || static_cast<uint64_t>(st.st_size) != announced.bytes) {
    return corruption(what + "its descriptor has another size than was said");
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return corruption(what + "its descriptor is no memfd that can't shrink");
  }
  void* map = ::mmap(nullptr, announced.bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return {StatusCode::unavailable, what + "mmap failed"};
  segments_[announced.segment] =
      std::make_shared<const SegmentMapping>(static_cast<const uint8_t*>(map), announced.bytes);
  return {};
}

void SegmentMap::revoke(uint32_t segment) {
  auto it = segments_.find(segment);
  if (it == segments_.end()) return;
  revoked_.emplace_back(segment, it->second);
  segments_.erase(it);
  for (Known& known : known_) {
    if (known.segment == segment) known = {};
  }
}

void SegmentMap::revoke_all() {
  while (!segments_.empty()) revoke(segments_.begin()->first);
}

std::vector<uint32_t> SegmentMap::unmapped() {
  std::vector<uint32_t> out;
  std::erase_if(revoked_, [&out](const auto& r) {
    if (!r.second.expired()) return false;
    out.push_back(r.first);
    return true;
  });
  return out;
}

Result<SegmentMap::Known> SegmentMap::learn(const MappedObject& told) const {
  auto segment = segments_.find(told.segment);
  if (segment == segments_.end()) {
    return bad("segment " + std::to_string(told.segment) + " was not announced");
  }
  ByteReader in(told.header);
  KV_ASSIGN_OR_RETURN(Object object, decode_header(in));
  if (!in.done()) return bad("bytes after an object's header");
  const auto& mapping = segment->second;
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += plane_bytes(p);
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  const uint64_t size = mapping->bytes(), counter = told.offset / kSlotPageBytes * sizeof(uint64_t);
  if (told.offset % kSlotPageBytes != 0 || told.offset > size || bytes > size - told.offset ||
      counter + sizeof(uint64_t) > told.offset) {
    return bad("an object outside of its segment");
  }
  KV_RETURN_IF_ERROR(attach_payload(object, Bytes(mapping, mapping->begin() + told.offset, bytes)));
  return Known{told.number, told.segment, std::make_shared<const Object>(std::move(object)),
               reinterpret_cast<const std::atomic<uint64_t>*>(mapping->begin() + counter),
               told.generation};
}

Result<MappedPrefix> SegmentMap::take(const MappedReply& reply, const Selection& selection) {
  MappedPrefix out{{reply.tokens, {}}, nullptr};
  out.prefix.objects.reserve(reply.objects.size());
  std::shared_ptr<MappedLease> lease;
  if (reply.lease != 0) lease = std::make_shared<MappedLease>(reply.lease, ended_);
  const bool whole = selection.layers.all() && selection.parts.all();
  for (const MappedObject& told : reply.objects) {
    if (told.place == ObjectPlace::streamed) {
      out.prefix.objects.push_back({nullptr, told.end_token});
      continue;
    }
    if (!lease) return bad("a mapped object without a lease");
    Known& known = known_[told.number % kKnownHeaders];
    if (told.place == ObjectPlace::mapped) {
      KV_ASSIGN_OR_RETURN(known, learn(told));
    } else if (known.number != told.number) {
      return bad("object " + std::to_string(told.number) + " is not known");
    }
    ObjectPtr object = whole ? known.object : select_parts(known.object, selection);
    if (!object) return bad("an object of which nothing was asked for");
    // A copy of the pointer holds the lease.
    out.prefix.objects.push_back({ObjectPtr(lease, object.get()), told.end_token});
    lease->add(std::move(object), {known.counter, known.generation});
  }
  out.lease = std::move(lease);
  return out;
}

}  // namespace kv
