// Planes given their places and coded, the object put together: all on workers.
#include "cachesvc/core/encode.h"

#include "cachesvc/core/encode_plane.h"
#include "cachesvc/core/object_buffer.h"

namespace kv {
namespace {

// True if the slot's result has exactly the rows given.
bool as_given(const EncodeInput& in, const Plane& p) {
  return is_main(in.object.name.kind) ||
         (p.first_row == in.keep.first && p.end_row() == in.keep.end);
}

// True if the planes given are all of the buffer, one after another, and of the results' sizes.
bool lie_in(PoolBuffer& buffer, const std::vector<PlaneSlot>& slots,
            const std::vector<uint64_t>& sizes) {
  const uint8_t* at = buffer.data();
  for (size_t i = 0; i < slots.size(); ++i) {
    const Bytes& given = slots[i].given->bytes;
    if (given.data() != at || given.size() != sizes[i]) return false;
    at += sizes[i];
  }
  return at == buffer.data() + buffer.size();
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
  if (lie_in(w.kept, w.slots, sizes)) {
    w.payload = std::move(w.kept);
  } else if (RamPool::slab_bytes(total) <= w.stored.bytes()) {
    w.payload = w.pool->allocate(total, w.stored, in.object.ns);
  } else {
    return;
  }
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

// Moves the object's payload into one pool buffer and computes its sum. Planes elsewhere are
// copied.
Result<RamObject> into_pool(EncodeWork& w, Object object) {
  PoolBuffer buffer;
  if (in_place(w, object)) {
    buffer = std::move(w.payload);
  } else {
    KV_ASSIGN_OR_RETURN(buffer,
                        buffer_in_pool(object.payload_bytes(), *w.pool, w.stored, object.ns));
  }
  return into_buffer(std::move(object), std::move(buffer));
}

}  // namespace

void encode_planes(EncodeWork& w) {
  std::call_once(w.placed, [&w] {
    w.planes.resize(w.slots.size());
    set_places(w);
  });
  while (!w.error.failed()) {
    size_t i = w.next.fetch_add(1);
    if (i >= w.slots.size()) return;
    auto plane = finished_plane(w.input, w.slots[i], w.counts);
    plane.ok() ? void(w.planes[i] = std::move(*plane)) : w.error.set(plane.status());
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
