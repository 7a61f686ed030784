// Secrets of the configuration: tokens and passwords, each in a private file of its own.
#pragma once

#include <string>

#include "proto/status.h"

namespace kv {

/// The bytes of the file but for one newline at the end: kMinTokenBytes to kMaxTokenBytes of them.
/// `what` it is begins every message: "token file". Returns: invalid_argument (mode, owner,
/// length), io_error.
Result<std::string> read_secret(const std::string& what, const std::string& path);

}  // namespace kv
