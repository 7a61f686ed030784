// Payload bytes moved into one buffer, summed on the way.
#include "cachesvc/core/object_buffer.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace kv {
namespace {

constexpr size_t kCopyStepBytes = 64 << 10;  // a copy's step: fits a core's cache

}  // namespace

Result<PoolBuffer> buffer_in_pool(uint64_t bytes, RamPool& pool, Charge& charge,
                                  std::string_view ns) {
  uint64_t needed = RamPool::slab_bytes(bytes);
  if (charge.bytes() < needed) {
    auto more = pool.try_charge(ChargeKind::stored, needed - charge.bytes());
    if (!more) return Status(StatusCode::busy, "no RAM for an object larger than expected");
    charge.merge(std::move(*more));
  }
  return pool.allocate(bytes, charge, ns);
}

Result<RamObject> into_buffer(Object object, PoolBuffer buffer, Xxh128Stream* planes) {
  uint8_t* at = buffer.data();
  std::optional<Xxh128Stream> own;
  Xxh128Stream& sum = planes ? *planes : own.emplace();
  auto take = [&](std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {  // summed while the bytes are in a core's cache
      const auto step = bytes.first(std::min(bytes.size(), kCopyStepBytes));
      if (at != step.data()) std::memcpy(at, step.data(), step.size());
      sum.update({at, step.size()});
      at += step.size();
      bytes = bytes.subspan(step.size());
    }
  };
  for (const Plane& p : object.planes) {
    planes ? void(at += p.bytes.size()) : take(p.bytes.span());
  }
  for (const StateBlob& s : object.states) take(s.bytes.span());
  KV_RETURN_IF_ERROR(attach_payload(object, std::move(buffer).freeze()));
  return RamObject{std::make_shared<const Object>(std::move(object)), sum.digest()};
}

}  // namespace kv
