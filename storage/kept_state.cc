// The state's encoding: place, hours, and the hash of both.
#include "storage/kept_state.h"

#include "proto/bytes.h"
#include "proto/checksum.h"

namespace kv {

std::vector<uint8_t> encode_kept_state(const KeptState& state) {
  ByteWriter out;
  out.u16(state.scrubbed);
  out.u32(static_cast<uint32_t>(state.written.size()));
  for (const auto& [hour, bytes] : state.written) {
    out.u64(static_cast<uint64_t>(hour));
    out.u64(bytes);
  }
  Xxh128 hash = xxh3_128(out.span());
  out.u64(hash.low);
  out.u64(hash.high);
  return out.take();
}

Result<KeptState> decode_kept_state(std::span<const uint8_t> bytes) {
  ByteReader in(bytes);
  KeptState state;
  state.scrubbed = in.u16();
  uint32_t hours = in.u32();
  if (hours > kKeptHours) in.fail();
  for (uint32_t i = 0; i < hours && !in.failed(); ++i) {
    auto hour = static_cast<int64_t>(in.u64());
    uint64_t written = in.u64();
    if (written > kMaxHourBytes || !state.written.emplace(hour, written).second) in.fail();
  }
  Xxh128 hash{in.u64(), in.u64()};
  bool whole = in.done() && hash == xxh3_128(bytes.first(bytes.size() - sizeof(hash)));
  if (!whole) return corruption("catalog: a state that contradicts its hash or its limits");
  return state;
}

}  // namespace kv
