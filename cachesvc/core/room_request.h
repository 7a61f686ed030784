// Room: the RAM that a request needs, and has. RamRoom (core/ram_room.h) makes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cachesvc/core/shares.h"
#include "cachesvc/ram_pool.h"
#include "proto/status.h"

namespace kv {

/// Bytes that a request needs all at once, in a few accounts.
struct Room {
  uint64_t stored = 0, staging = 0, promotion = 0, reply = 0, index = 0, session = 0, model = 0;
  ShareId share = kCommonShare;  ///< of the namespace that asks
  uint64_t total() const { return stored + staging + promotion + reply + index + session + model; }
};
struct RoomCharges {
  Charge stored, staging, promotion, reply, index, session, model;
};
using RoomDone = std::function<void(Result<std::shared_ptr<RoomCharges>>)>;

}  // namespace kv
