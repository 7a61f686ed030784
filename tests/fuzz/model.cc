// Fuzz target: a model's geometry. What decodes must encode to the same bytes; validate must not
// fail.
#include "proto/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kv::ByteReader in({data, size});
  auto model = kv::decode_model(in);
  if (!model.ok()) return 0;
  kv::ByteWriter out;
  kv::encode(*model, out);
  if (out.size() != in.at() || std::memcmp(out.span().data(), data, out.size()) != 0)
    __builtin_trap();
  if (kv::validate(*model, 256).ok()) (void)kv::part_groups(*model);
  return 0;
}
