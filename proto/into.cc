// Payloads laid out over pieces.
#include "proto/into.h"

#include <algorithm>
#include <cstring>

#include "proto/own_memory.h"

namespace kv {
namespace {

// Pieces, those that follow each other as one, taken from the front.
class Places {
 public:
  explicit Places(const Pieces& pieces) {
    for (std::span<uint8_t> piece : pieces) {
      const bool follows =
          !pieces_.empty() && pieces_.back().data() + pieces_.back().size() == piece.data();
      if (follows)
        pieces_.back() = {pieces_.back().data(), pieces_.back().size() + piece.size()};
      else
        pieces_.push_back(piece);
    }
  }
  /// Takes the place of so many bytes, which are copied there from `from` unless that is null.
  /// Without bytes if the place is not one piece. Precondition: the pieces are long enough.
  Bytes take(uint64_t bytes, const uint8_t* from) {
    if (bytes == 0) return {};
    skip_full();
    const uint8_t* whole = bytes <= room() ? pieces_[at_].data() + used_ : nullptr;
    for (uint64_t left = bytes; left > 0;) {
      skip_full();
      const size_t now = std::min<uint64_t>(left, room());
      if (from != nullptr) std::memcpy(pieces_[at_].data() + used_, from + (bytes - left), now);
      left -= now;
      used_ += now;
    }
    return whole != nullptr ? Bytes(nullptr, whole, bytes) : Bytes();
  }

 private:
  size_t room() const { return pieces_[at_].size() - used_; }
  void skip_full() {
    for (; room() == 0; ++at_) used_ = 0;
  }
  Pieces pieces_;
  size_t at_ = 0, used_ = 0;
};

bool continues(const MemoryRun& run, uint64_t offset, uint64_t bytes) {
  if (run.bytes != bytes || offset < run.offset) return false;
  if (run.count == 1) return offset - run.offset <= kMaxMemoryStride;
  return offset == run.offset + run.count * run.stride;
}

}  // namespace

uint64_t bytes_of(const Pieces& pieces) {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

uint64_t payload_bytes_of(const Object& object) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += plane_bytes(p);
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return bytes;
}
uint64_t payload_bytes_of(const Prefix& prefix) {
  uint64_t bytes = 0;
  for (const FetchedObject& o : prefix.objects) bytes += payload_bytes_of(*o.object);
  return bytes;
}

std::optional<std::vector<MemoryRun>> runs_of(OwnMemory& memory, const Pieces& pieces) {
  std::vector<MemoryRun> runs;
  uint64_t count = 0;
  for (std::span<uint8_t> piece : pieces) {
    const auto at = memory.offset_of(piece);
    if (!at) return {};
    memory.touch(piece);
    for (uint64_t done = 0; done < piece.size();) {
      const uint64_t bytes = std::min<uint64_t>(piece.size() - done, kMaxObjectBytes);
      const uint64_t offset = *at + done;
      done += bytes;
      if (++count > kMaxMemoryPieces) return {};
      if (runs.empty() || !continues(runs.back(), offset, bytes)) {
        runs.push_back({offset, bytes, 0, 1});
        continue;
      }
      if (runs.back().count++ == 1) runs.back().stride = offset - runs.back().offset;
    }
  }
  return runs;
}

Status place(Prefix& prefix, const Pieces& pieces, bool copy) {
  const uint64_t needed = payload_bytes_of(prefix), there = bytes_of(pieces);
  if (needed > there) {
    return {StatusCode::resource_exhausted, "fetch: " + std::to_string(needed) +
                                                " bytes, the caller's pieces have " +
                                                std::to_string(there)};
  }
  Places places(pieces);
  for (FetchedObject& o : prefix.objects) {
    Object moved = *o.object;
    for (Plane& p : moved.planes) {
      p.bytes = places.take(plane_bytes(p), copy ? p.bytes.data() : nullptr);
    }
    for (StateBlob& s : moved.states) {
      s.bytes = places.take(s.bytes.size(), copy ? s.bytes.data() : nullptr);
    }
    o.object = std::make_shared<const Object>(std::move(moved));
  }
  return {};
}

Result<FetchReply> copied_into(FetchReply reply, const Pieces& pieces) {
  Prefix prefix = reply.lease.prefix();
  KV_RETURN_IF_ERROR(place(prefix, pieces, true));
  if (!reply.lease.valid()) {
    return Status(StatusCode::busy, "fetch: the service took its memory back: ask again");
  }
  reply.lease = Lease(std::move(prefix), nullptr);
  return reply;
}

}  // namespace kv
