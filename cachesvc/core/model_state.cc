// Bytes of a model's records.
#include "cachesvc/core/model_state.h"

namespace kv {
namespace {

uint64_t whole_blocks(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

RecordBytes record_bytes(const ModelSpec& spec, const Profile& profile) {
  return {whole_blocks(held_bytes(spec)), whole_blocks(encoded_bytes(profile))};
}

uint64_t record_encoding_bytes(const Profile* profile) {
  return profile ? 2 * encoded_bytes(*profile) : 0;
}

}  // namespace kv
