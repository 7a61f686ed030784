// The kernels that run: the machine's best, or those that KV_KERNELS asks for.
#include "codec/kernels.h"

#include <cstdlib>
#include <string>

namespace kv {

// The sets of other processors than the one that this is built for.
#if !defined(__x86_64__)
const Kernels* avx2_kernels() { return nullptr; }
const Kernels* avx512_kernels() { return nullptr; }
#endif
#if !defined(__aarch64__)
const Kernels* neon_kernels() { return nullptr; }
#endif

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> out;
  for (const Kernels* set : {&scalar_kernels(), avx2_kernels(), avx512_kernels(), neon_kernels()}) {
    if (set != nullptr) out.push_back(set);
  }
  return out;
}

Result<const Kernels*> select_kernels() {
  const char* variable = std::getenv("KV_KERNELS");
  const std::string wanted = variable == nullptr ? "" : variable;
  if (wanted.empty()) return available_kernels().back();
  for (const Kernels* set : available_kernels()) {
    if (wanted == set->name) return set;
  }
  if (wanted == "avx2") return unsupported("KV_KERNELS=avx2: this machine lacks AVX2, FMA or F16C");
  if (wanted == "avx512") {
    return unsupported("KV_KERNELS=avx512: this machine lacks AVX-512 with VBMI and VNNI");
  }
  if (wanted == "neon") return unsupported("KV_KERNELS=neon: this machine is no AArch64 one");
  return invalid_argument("KV_KERNELS=" + wanted + ": expected scalar, avx2, avx512 or neon");
}

}  // namespace kv
