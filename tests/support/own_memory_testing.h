// Puts whose rows lie in a client's own memory.
#pragma once

#include <cstring>

#include "proto/client.h"
#include "proto/own_memory.h"

namespace kv {

/// Moves the put's rows and states into `memory`, from place `at` on, and `at` behind them; `gap`
/// bytes are left out between two.
inline void move_rows(const std::shared_ptr<OwnMemory>& memory, PutRequest& put, uint64_t& at,
                      uint64_t gap = 0) {
  auto move = [&](Bytes& bytes) {
    KV_CHECK(at + bytes.size() <= memory->bytes());
    std::memcpy(memory->data() + at, bytes.data(), bytes.size());
    bytes = Bytes(memory, memory->data() + at, bytes.size());
    at += bytes.size() + gap;
  };
  for (Plane& plane : put.object.planes) move(plane.bytes);
  for (StateBlob& state : put.object.states) move(state.bytes);
}

}  // namespace kv
