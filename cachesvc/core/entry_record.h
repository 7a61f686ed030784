// Words of clients about entries, kept with the record of an entry's last object. Functions; loop
// thread only.
#pragma once

#include "cachesvc/core/env.h"
#include "cachesvc/core/record.h"

namespace kv {

/// Keeps the words, and what they say a token costs, with a block or tail in place of earlier ones,
/// charged to the index's share of RAM. False: there is no room, and nothing changes; or it has
/// them already.
bool say(const Env& env, Record& record, const EntryWords& words);

/// The part of an entry's cost that a hit of n tokens of it saves; 0: nobody has said what it cost.
uint64_t saved_ms(const Record& record, uint32_t n);

}  // namespace kv
