// The network that a demo_step runs: a GGUF file's, or in the tests' build of it (tests/tiny) one
// of the tiny models. Each program links one of the two definitions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/network.h"

namespace kv {

/// `model`: a GGUF file's path, in the tests a tiny model's name. `threads`: at least 1. Returns:
/// what the source of the network returns; it names the model.
Result<std::unique_ptr<Network>> demo_network(const std::string& model, uint32_t threads);

}  // namespace kv
