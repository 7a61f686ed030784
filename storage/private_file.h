// A secret's file: read only if nobody but the process's user may touch it. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "proto/status.h"

namespace kv {

/// Reads at most `into.size()` bytes of a regular file that belongs to the process's user, closed
/// to all others. `what` it is begins every message: "key file". Returns: how many bytes;
/// invalid_argument (mode, owner, kind of file), io_error.
Result<size_t> read_private(const std::string& what, const std::string& path,
                            std::span<uint8_t> into);

}  // namespace kv
