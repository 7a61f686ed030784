// Reads of object files. The sum is computed on the way, while the bytes are in the processor's
// cache.
#include "cachesvc/core/read_job.h"

#include "cachesvc/core/object_buffer.h"

namespace kv {

bool ReadJob::take(State next) {
  State expected = State::waiting;
  return state.compare_exchange_strong(expected, next);
}

void ReadJob::release() {
  payload = {};
  packed.reset();
  stored.release();
  promotion.release();
  held.reset();
  ssd.reset();
}

Result<RamObject> ReadJob::run() {
  began = Clock::now();
  if (!take(State::running)) return Status(StatusCode::deadline_exceeded, "given up");
  struct End {
    ReadJob& job;
    ~End() { job.release(); }
  } end{*this};
  return read();
}

// Reads into one pool buffer; packed pieces lie beside it first.
Result<RamObject> ReadJob::read() {
  KV_ASSIGN_OR_RETURN(FileImage image,
                      ssd->read(name, [this](const HeaderView& head) { return place(head); }));
  Xxh128 sum;
  if (packed) {
    KV_ASSIGN_OR_RETURN(sum, unpack_pieces(image.pieces, {payload.data(), payload.size()}));
  } else {
    sum = image.placed_sum.value();
  }
  Object object = std::move(image.header);
  KV_RETURN_IF_ERROR(attach_payload(object, std::move(payload).freeze()));
  Status fits = validate(object, *model, *profile);
  if (!fits.ok()) return corruption("does not fit its model: " + fits.message());
  return RamObject{std::make_shared<const Object>(std::move(object)), sum};
}

// The place of the file's payload: the object's own buffer, or beside it if some of it is packed.
Result<std::span<uint8_t>> ReadJob::place(const HeaderView& head) {
  bool again = payload.data() != nullptr && payload.size() == head.unpacked_bytes;
  if (!again) {
    KV_ASSIGN_OR_RETURN(payload,
                        buffer_in_pool(head.unpacked_bytes, *pool, stored, head.header.ns));
  }
  uint64_t stored_bytes = 0;
  bool all_raw = true;
  for (const Piece& piece : head.pieces) {
    stored_bytes += piece.bytes.size();
    all_raw &= piece.packing == Packing::raw;
  }
  packed.reset();
  if (all_raw) return std::span(payload.data(), payload.size());
  packed = std::make_unique_for_overwrite<uint8_t[]>(stored_bytes);
  return std::span(packed.get(), stored_bytes);
}

}  // namespace kv
