// Ages: when objects came and were used, told to the measures as they are used again or evicted.
// Loop thread only.
#pragma once

#include <vector>

#include "cachesvc/core/env.h"
#include "cachesvc/core/record.h"

namespace kv {

/// The object was stored now.
void note_birth(const Env& env, Record& record);
/// A fetch uses these now.
void note_uses(const Env& env, const std::vector<Record*>& records);
/// The object is about to leave RAM, or the SSD, to make room; `gone`: it is in no tier then.
enum class Leaves : uint8_t { ram, ssd };
void note_eviction(const Env& env, const Record& record, Leaves tier, bool gone);

}  // namespace kv
