// Payload bytes moved into one buffer, summed on the way.
#include "cachesvc/core/object_buffer.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "codec/lossless.h"

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

Result<Xxh128> unpack_pieces(const std::vector<Piece>& pieces, std::span<uint8_t> out) {
  Xxh128Stream sum;
  for (const Piece& piece : pieces) {
    auto to = out.first(piece.unpacked_bytes);
    out = out.subspan(to.size());
    if (piece.packing == Packing::raw) {
      std::copy_n(piece.bytes.data(), to.size(), to.data());
    } else {
      auto way = piece.packing == Packing::split ? unpack_split : unpack;
      KV_RETURN_IF_ERROR(way(piece.bytes.span(), to));
    }
    sum.update(to);
  }
  return sum.digest();
}

Result<RamObject> into_pool(FileImage image, RamPool& pool, Charge& charge, const ModelSpec& model,
                            const Profile& profile) {
  KV_ASSIGN_OR_RETURN(PoolBuffer buffer,
                      buffer_in_pool(image.unpacked_bytes(), pool, charge, image.header.ns));
  KV_ASSIGN_OR_RETURN(Xxh128 sum, unpack_pieces(image.pieces, {buffer.data(), buffer.size()}));
  Object object = std::move(image.header);
  KV_RETURN_IF_ERROR(attach_payload(object, std::move(buffer).freeze()));
  Status fits = validate(object, model, profile);
  if (!fits.ok()) return corruption("does not fit its model: " + fits.message());
  return RamObject{std::make_shared<const Object>(std::move(object)), sum};
}

}  // namespace kv
