// Log lines of a start: the settings that matter, and what was found in the store. Main only.
#pragma once

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/config.h"

namespace kv {

void log_start(const Config& config, const CacheCore& core);
/// Once when serving begins, once more when the background has read the rest.
void log_recovery(const Recovery& recovery);

}  // namespace kv
