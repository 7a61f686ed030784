// fingerprint: the identity of a model in a GGUF file, by the recipe of engine/MODELS.md, which
// other programs follow too. Pure function, any thread.
#pragma once

#include "engine/gguf.h"
#include "proto/checksum.h"

namespace kv {

/// Hashes every tensor: about a second for 500 MB.
Id fingerprint(const GgufFile& file);

}  // namespace kv
