// RowSource: where the rows of a put lie that the service fetches itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "proto/status.h"

namespace kv {

/// Brings bytes [at, at + to.size()) of a put's planes, which lie one after another somewhere else.
/// Any thread.
using RowSource = std::function<Status(uint64_t at, std::span<uint8_t> to)>;

}  // namespace kv
