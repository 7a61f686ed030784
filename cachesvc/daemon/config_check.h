// Checks that need more than one setting. Called by load_config at its end.
#pragma once

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/config_mistakes.h"

namespace kv {

/// Looks for settings that are right alone and can't hold together; a default gives way. Mistakes
/// name both with their places.
void check_together(const Config& config, Mistakes& mistakes);

}  // namespace kv
