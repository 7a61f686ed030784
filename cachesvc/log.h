// Log lines of the service: text for people, or one JSON object per line. Set up once, in main.
#pragma once

#include "cachesvc/config.h"

namespace kv {

/// Sends spdlog's default logger to stderr as `options` say. Never prompt content, never token ids.
void set_up_log(const LogOptions& options);

}  // namespace kv
