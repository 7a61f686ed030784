// Fuzz target: a profile. What decodes must encode to the same bytes.
#include "proto/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kv::ByteReader in({data, size});
  auto profile = kv::decode_profile(in);
  if (!profile.ok()) return 0;
  kv::ByteWriter out;
  kv::encode(*profile, out);
  if (out.size() != in.at() || std::memcmp(out.span().data(), data, out.size()) != 0)
    __builtin_trap();
  return 0;
}
