// Attention kinds: from a model's configuration to what its cache looks like, so that nothing that
// is no plain KV is ever taken for it.
//
// The configuration is a Hugging Face config.json, its text model at the top or nested
// (text_config, llm_config, language_config, thinker_config, up to three deep). A family is known
// by model_type or, where that is missing or unknown, by the architecture's name. What is not known
// is refused by name: a family, a layer type, a key that stands for another kind of attention
// (latents, an indexer; a list, so a family's new key is not known before it is listed), rotary
// scaling by total length. Any bytes are safe input.
#pragma once

#include <string>
#include <string_view>

#include "engine/gguf.h"
#include "proto/model.h"

namespace kv {

inline constexpr size_t kMaxConfigBytes = 1u << 20;

/// The parts of every layer; name and fingerprint are left to the caller. Row dtypes are those of
/// the configuration's dtype (f16 if it has none).
/// Returns: invalid_argument (no JSON, a field missing or out of range, by name), unsupported (by
/// name: family, layer type, key).
Result<ModelSpec> spec_of_config(std::string_view config);

/// Bytes of what the recurrent layers of such a model hold at one position, in fp32, as engines
/// keep it; 0: it has none. Returns: as spec_of_config.
Result<uint64_t> state_bytes_of_config(std::string_view config);

/// For a GGUF that is about to be run as `architecture`: no key of it stands for another kind of
/// attention than the architecture's own. Returns: unsupported naming the key.
Status check_attention_keys(const GgufFile& file, std::string_view architecture);

}  // namespace kv
