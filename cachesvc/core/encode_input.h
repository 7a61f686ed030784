// EncodeInput: a client's put as the workers find it: its object, the sources of its copied rows,
// and how rows are to be stored. Immutable once plane_slots() has been asked.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/core/row_source.h"
#include "cachesvc/ram_object.h"
#include "codec/codec.h"
#include "codec/stream_bytes.h"
#include "index/restorable.h"
#include "proto/client.h"

namespace kv {

struct EncodeInput {
  Object object;  ///< stamped; its planes begin where the copies end
  std::vector<CopyRows> copies;
  std::vector<RamObject> sources;  ///< one per copy, resident
  RamObject states_of;             ///< object whose states are shared; may be null
  RowRange keep;                   ///< supplements with rows: cut to these
  bool encode = false;             ///< a complete block, or a supplement of one
  bool keep_nonfinite = false;     ///< planes and states with NaN or Inf are stored as given
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const std::vector<PartGroup>> groups;  ///< the model's

  bool is_supplement() const { return object.name.kind == ObjectKind::supplement; }
};

/// Sums over the planes and states of one put. Any thread.
struct EncodeCounts {
  std::atomic<uint64_t> raw_fallbacks{0};
  std::atomic<uint64_t> nonfinite{0};  ///< planes and states with NaN or Inf, kept or refused

  void add(const StreamBytes& more) {
    taken_ += more.taken;
    promised_ += more.promised;
    f16_ += more.f16;
  }
  /// Sums of what transforms coded. Once the planes are done.
  StreamBytes streams() const { return {taken_, promised_, f16_}; }

 private:
  std::atomic<uint64_t> taken_{0}, promised_{0}, f16_{0};
};

/// One plane that the stored object has.
struct PlaneSlot {
  uint16_t layer = 0, part = 0;
  Side side = Side::k;
  const Plane* given = nullptr;   ///< of the input's object; null: all rows are copied
  std::span<uint8_t> place = {};  ///< its place in the result's payload; empty: not known yet
  uint64_t at = 0;                ///< of its bytes, where a RowSource brings them

  /// "layer 3 part 0 side k: ", as errors begin.
  std::string where() const;
};

/// Checks which planes and states there are, against the object's kind.
/// Returns: invalid_argument naming layer, part, side, expected and given.
Result<std::vector<PlaneSlot>> plane_slots(const EncodeInput& in);
/// Checks a state's size, and its values if they are of the part's dtype; carries and opaque bytes
/// are the engine's own.
Status check_state(const EncodeInput& in, const StateBlob& state, EncodeCounts& counts);
/// Null: the object has no such plane.
const Plane* find_plane(const Object& o, uint16_t layer, uint16_t part, Side side);

}  // namespace kv
