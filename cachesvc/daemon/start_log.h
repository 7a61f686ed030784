// Log lines of a start: the settings that matter, and the objects found in the store. Main only.
#pragma once

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/config.h"

namespace kv {

void log_start(const Config& config, const CacheCore& core);
/// Logs what was found: when serving begins, and again when the background has read the rest.
void log_recovery(const Recovery& recovery);

}  // namespace kv
