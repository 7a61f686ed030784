// Planes given their places and coded, the object put together: all on workers.
#include "cachesvc/core/encode.h"

#include <algorithm>
#include <utility>

#include "cachesvc/core/encode_plane.h"
#include "cachesvc/core/object_buffer.h"

namespace kv {
namespace {

// True if the slot's result has exactly the rows given.
bool as_given(const EncodeInput& in, const Plane& p) {
  return is_main(in.object.name.kind) ||
         (p.first_row == in.keep.first && p.end_row() == in.keep.end);
}

// Gives every plane its place in one pool buffer, if all sizes can be told from the input.
// Otherwise none has one: a plane's errors are reported when it is coded.
void set_places(EncodeWork& w) {
  const EncodeInput& in = w.input;
  if (!in.encode || !in.copies.empty()) return;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const auto& slot : w.slots) {
    if (!check_size(*slot.given).ok() || !as_given(in, *slot.given)) return;
    auto size = in.codec->encoded_bytes(*slot.given);
    if (!size.ok()) return;
    sizes.push_back(*size);
    total += *size;
  }
  for (const StateBlob& s : in.object.states) total += s.bytes.size();
  if (total == 0) return;
  if (RamPool::slab_bytes(total) > w.stored.bytes()) return;
  w.payload = w.pool->allocate(total, w.stored, in.object.ns);
  uint8_t* at = w.payload.data();
  for (size_t i = 0; i < sizes.size(); at += sizes[i++]) w.slots[i].place = {at, sizes[i]};
}

// True if every plane lies in its place in the work's payload.
bool in_place(const EncodeWork& w, const Object& object) {
  if (w.payload.size() == 0) return false;
  for (size_t i = 0; i < w.slots.size(); ++i) {
    if (object.planes[i].bytes.data() != w.slots[i].place.data()) return false;
  }
  return true;
}

// Copied rows are right if their source still has its checksum.
Status check_sources(EncodeWork& w) {
  std::vector<RamObject> all = w.input.sources;
  if (w.input.states_of) all.push_back(w.input.states_of);
  const Object* last = nullptr;
  for (const RamObject& source : all) {
    if (std::exchange(last, source.object.get()) == source.object.get()) continue;
    if (!intact(source)) w.damaged.push_back(source.object);
  }
  if (w.damaged.empty()) return {};
  return {StatusCode::not_found,
          "source " + w.damaged.front()->name.id.hex() + " was damaged in RAM"};
}

// Moves the object's payload into one pool buffer, with its sum. Planes elsewhere are copied.
Result<RamObject> into_pool(EncodeWork& w, Object object) {
  if (in_place(w, object) && w.sum.complete()) {
    return into_buffer(std::move(object), std::move(w.payload), &w.sum.sum());
  }
  KV_ASSIGN_OR_RETURN(PoolBuffer buffer,
                      buffer_in_pool(object.payload_bytes(), *w.pool, w.stored, object.ns));
  return into_buffer(std::move(object), std::move(buffer));
}

// True if the slot's rows are stored as they come.
bool stays(const EncodeWork& w, const PlaneSlot& slot) {
  const SideCoding* side = w.input.codec->side(slot.layer, slot.part, slot.side);
  return !side->coded() && slot.given->dtype == side->raw_dtype;
}

// The slot's plane, whose rows are brought first: to where they stay, or else to `scratch`.
Result<Plane> brought_plane(EncodeWork& w, PlaneSlot slot, std::vector<uint8_t>& scratch) {
  if (!w.read) return finished_plane(w.input, slot, w.counts);
  const size_t bytes = slot.given->bytes.size();
  std::span<uint8_t> to = slot.place;
  if (!stays(w, slot) || to.size() != bytes) {
    if (scratch.size() < bytes) scratch.resize(bytes);
    to = std::span(scratch).first(bytes);
  }
  KV_RETURN_IF_ERROR(w.read(slot.at, to));
  Plane given = *slot.given;
  given.bytes = Bytes(nullptr, to.data(), bytes);
  slot.given = &given;
  return finished_plane(w.input, slot, w.counts);
}

}  // namespace

void SumInOrder::add(size_t part, std::span<const uint8_t> bytes) {
  std::unique_lock lock(mutex_);
  ready_[part] = bytes;
  if (std::exchange(summing_, true)) return;
  while (summed_ < ready_.size() && ready_[summed_]) {
    const auto next = *ready_[summed_];
    lock.unlock();
    sum_.update(next);
    lock.lock();
    ++summed_;
  }
  summing_ = false;
}

uint64_t scratch_bytes(const EncodeWork& w) {
  uint64_t most = 0;
  for (const PlaneSlot& slot : w.slots) {
    if (slot.given && !stays(w, slot)) most = std::max<uint64_t>(most, slot.given->bytes.size());
  }
  return most;
}

void encode_planes(EncodeWork& w) {
  std::call_once(w.placed, [&w] {
    w.planes.resize(w.slots.size());
    w.sum.expect(w.slots.size());
    set_places(w);
  });
  std::vector<uint8_t> scratch;
  while (!w.error.failed()) {
    size_t i = w.next.fetch_add(1);
    if (i >= w.slots.size()) return;
    auto plane = brought_plane(w, w.slots[i], scratch);
    if (!plane.ok()) {
      w.error.set(plane.status());
      return;
    }
    w.planes[i] = std::move(*plane);
    if (w.planes[i].bytes.data() == w.slots[i].place.data()) w.sum.add(i, w.planes[i].bytes.span());
  }
}

Result<RamObject> assemble(EncodeWork& w) {
  if (w.error.failed()) return w.error.status();
  const EncodeInput& in = w.input;
  const bool cut = in.is_supplement() && in.keep.first < in.keep.end;
  Object object = std::move(w.input.object);
  object.planes = std::move(w.planes);
  if (cut) {
    object.name.first_row = in.keep.first;
    object.name.end_row = in.keep.end;
  }
  for (const StateBlob& s : object.states) KV_RETURN_IF_ERROR(check_state(in, s, w.counts));
  KV_RETURN_IF_ERROR(validate(object, in.codec->model(), in.codec->profile()));
  if (object.payload_bytes() > kMaxObjectBytes) {
    return invalid_argument("object of " + std::to_string(object.payload_bytes()) +
                            " bytes over its limit " + std::to_string(kMaxObjectBytes));
  }
  auto pooled = into_pool(w, std::move(object));
  KV_RETURN_IF_ERROR(check_sources(w));
  return pooled;
}

}  // namespace kv
