// The Network of a Model: its decoder for steps, its prefill for many tokens at once.
#pragma once

#include <memory>

#include "engine/model.h"
#include "engine/network.h"

namespace kv {

/// `threads`: 1 … kMaxEngineThreads, the caller included; they live as long as the network.
/// Returns: invalid_argument (threads).
Result<std::unique_ptr<Network>> make_network(std::shared_ptr<const Model> model, uint32_t threads);

}  // namespace kv
