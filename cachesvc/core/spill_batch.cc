// Packing of one object for its file.
#include "cachesvc/core/spill_batch.h"

#include "codec/lossless.h"

namespace kv {
namespace {

// Packs planes and states one by one. The size of a state's values is unknown: four bytes are
// assumed, and values of two split well too.
FileImage packed_image(const Object& object, bool pack_codes) {
  FileImage image = raw_image(object);
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    Piece& piece = image.pieces[i];
    const Plane* plane = i < object.planes.size() ? &object.planes[i] : nullptr;
    const bool codes = plane != nullptr && has_coded_runs(*plane);
    const bool packed_already = codes && coding_word(*plane) == kTransformWord;
    if (packed_already || (codes && !pack_codes)) continue;
    auto packed = codes ? pack(piece.bytes.span())
                        : pack_split(piece.bytes.span(), plane ? dtype_bytes(plane->dtype) : 4);
    if (!packed) continue;
    piece.packing = codes ? Packing::zstd : Packing::split;
    piece.bytes = Bytes::owning(std::move(*packed));
  }
  return image;
}

}  // namespace

void SpillBatch::move(State to) {
  if (to == state_) return;
  const bool again = state_ == State::writing && to == State::records;
  KV_CHECK(again || static_cast<int>(to) == static_cast<int>(state_) + 1);
  state_ = to;
}

uint64_t exact_bytes(const Object& object) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += has_coded_runs(p) ? 0 : p.bytes.size();
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return bytes;
}

PackedImage pack_object(const RamObject& object, bool raw, bool codes) {
  FileImage image = raw ? raw_image(*object) : packed_image(*object, codes);
  // The packed bytes are right if their source still has its checksum.
  return {std::make_shared<const FileImage>(std::move(image)), intact(object)};
}

}  // namespace kv
