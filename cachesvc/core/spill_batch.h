// SpillBatch: objects on their way from RAM to files, and the worker's part of it: packing.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "cachesvc/core/model_state.h"
#include "cachesvc/core/pins.h"
#include "storage/block_file.h"

namespace kv {

struct SpillItem {
  PinnedName which;
  RamObject object;
  std::shared_ptr<const FileImage> image;  ///< null: not packed; large, never copied on the loop
  bool raw = false;                        ///< no room to pack it
  bool damaged = false;
  bool again = false;  ///< the SSD was full
  ObjectNote note{};   ///< the record's as the write began
};

struct SpillBatch {
  /// packing ──> packed ──> records ──> writing ──> done
  ///                           ▲           │
  ///                           └───────────┘       the SSD was full: once more, with others' room
  enum class State : uint8_t { packing, packed, records, writing };  ///< records: of models, first
  State state() const { return state_; }
  /// Ends the process where no arrow leads there.
  void move(State to);
  std::vector<SpillItem> items;
  Pins pins;
  Charge scratch;        ///< pays for packed bytes
  size_t unpacked = 0;   ///< items whose packing is under way
  bool codes = false;    ///< codes are packed too
  bool retried = false;  ///< the SSD was full once
  std::set<ModelState*> records_tried;

 private:
  State state_ = State::packing;
};

/// Bytes of rows and states that are not coded.
uint64_t exact_bytes(const Object& object);

struct PackedImage {
  std::shared_ptr<const FileImage> image;
  bool intact = false;  ///< the object has the sum that it was stored with
};
/// Worker. Packs exact rows and states where it pays; `codes` too if told; `raw`: nothing.
PackedImage pack_object(const RamObject& object, bool raw, bool codes);

}  // namespace kv
