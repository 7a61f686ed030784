// Places, leases and known headers.
#include "cachesvc/daemon/mappings.h"

#include <utility>

#include "cachesvc/ram_object.h"

namespace kv {
namespace {

// Known headers of one connection: a place in the ring, and a node of the map.
constexpr uint64_t kKnownBytes = kKnownHeaders * 128;
// A lease, and an object of its prefix.
constexpr uint64_t kLeaseBytes = 256, kLeasedObjectBytes = 32;

}  // namespace

bool Mappings::enable() {
  if (core_.pool()->segments() == nullptr) return false;
  room_ = core_.memory().session_room(kKnownBytes);
  return enabled();
}

std::optional<SegmentPlace> Mappings::place_of(const std::string& ns, const Object& object) const {
  const uint8_t* at = payload_of(object);
  return at == nullptr ? std::nullopt : core_.pool()->segments()->place_of(ns, at);
}

OutFrame Mappings::give(const std::shared_ptr<const SegmentView>& view) {
  given_[view->id()] = view;
  OutFrame frame = reply_frame(FrameType::segment, 0,
                               SegmentAnnounced{view->id(), view->bytes(), view->page_bytes()});
  frame.descriptor = view->fd();
  frame.kept = view;
  return frame;
}

Mappings::Told Mappings::tell(const SegmentPlace& place) {
  const Slot slot = slot_of(place);
  if (auto known = known_.find(slot); known != known_.end()) return {known->second, true};
  const uint64_t number = ++last_number_;
  if (ring_.empty()) ring_.resize(kKnownHeaders);
  Slot& oldest = ring_[number % kKnownHeaders];
  known_.erase(oldest);
  oldest = slot;
  known_[slot] = number;
  return {number, false};
}

uint64_t Mappings::keep(std::shared_ptr<const Lease> lease) {
  if (leases_.size() >= kMaxLeases) return 0;
  const auto& objects = lease->prefix().objects;
  auto room = core_.memory().session_room(kLeaseBytes + objects.size() * kLeasedObjectBytes);
  if (!room) return 0;
  leases_[++last_lease_] = {std::move(lease), std::move(room)};
  return last_lease_;
}

void Mappings::forget(uint64_t lease, const std::vector<SegmentPlace>& told) {
  leases_.erase(lease);
  for (const SegmentPlace& place : told) known_.erase(slot_of(place));
}

Status Mappings::ended(const Frame& frame) {
  KV_ASSIGN_OR_RETURN(auto m, decode_reply<LeasesEnded>(frame.header.type, frame.body.span()));
  for (uint64_t lease : m.leases) leases_.erase(lease);
  return {};
}

Status Mappings::unmapped(const Frame& frame) {
  KV_ASSIGN_OR_RETURN(auto m, decode_reply<SegmentUnmapped>(frame.header.type, frame.body.span()));
  (void)revoke(m.segment);  // of its own accord: the client goes
  leaving_.erase(m.segment);
  return {};
}

bool Mappings::revoke(uint32_t segment) {
  auto it = given_.find(segment);
  if (it == given_.end()) return false;
  leaving_.insert(*it);
  given_.erase(it);
  std::erase_if(known_, [segment](const auto& k) { return k.first.segment == segment; });
  return true;
}

SegmentViews Mappings::drop() {
  take_back_all();
  SegmentViews views;
  for (auto* held : {&given_, &leaving_}) {
    for (auto& [id, view] : *held) views.push_back(std::move(view));
    held->clear();
  }
  return views;
}

}  // namespace kv
