// Checks that need more than one setting. Called by load_config at its end.
#pragma once

#include "cachesvc/daemon/config.h"

namespace kv {

/// Settings that are right alone and can't hold together; a default gives way. Returns:
/// invalid_argument, naming both with their places.
Status check_together(const Config& config);

}  // namespace kv
