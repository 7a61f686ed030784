// The field list of engine/MODELS.md, "Fingerprint".
#include "engine/fingerprint.h"

#include <algorithm>

namespace kv {
namespace {

constexpr uint8_t kRecipeVersion = 1;
constexpr std::string_view kArchitecture = "general.architecture";

// One field: tag, u64 length, bytes.
void field(ByteWriter& out, char tag, std::span<const uint8_t> bytes) {
  out.u8(static_cast<uint8_t>(tag));
  out.u64(bytes.size());
  out.raw(bytes);
}

}  // namespace

Id fingerprint(const GgufFile& file) {
  ByteWriter fields;
  field(fields, 'v', {&kRecipeVersion, 1});
  const std::string_view source = "gguf";
  field(fields, 'f', {reinterpret_cast<const uint8_t*>(source.data()), source.size()});
  auto architecture = file.text(kArchitecture);
  const std::string prefix = std::string(architecture.ok() ? *architecture : "") + ".";
  for (std::string_view key : file.keys()) {
    if (key == kArchitecture || key.starts_with(prefix)) field(fields, 'k', file.entry(key));
  }
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor& t : file.tensors()) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  for (const GgufTensor* t : tensors) {
    field(fields, 't', t->info);
    field(fields, 'd', sha256(t->data).bytes);
  }
  return sha256(fields.span());
}

}  // namespace kv
