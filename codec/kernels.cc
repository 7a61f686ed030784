// Which kernels run: the machine's best, or what KV_KERNELS asks for.
#include "codec/kernels.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace kv {

Result<const Kernels*> select_kernels() {
  const char* wanted = std::getenv("KV_KERNELS");
  if (wanted == nullptr || *wanted == '\0') {
    for (const Kernels* best : {avx512_kernels(), avx2_kernels()}) {
      if (best != nullptr) return best;
    }
    return &scalar_kernels();
  }
  if (std::strcmp(wanted, "scalar") == 0) return &scalar_kernels();
  if (std::strcmp(wanted, "avx2") == 0) {
    const Kernels* avx2 = avx2_kernels();
    if (avx2 == nullptr)
      return unsupported("KV_KERNELS=avx2: this machine lacks AVX2, FMA or F16C");
    return avx2;
  }
  if (std::strcmp(wanted, "avx512") == 0) {
    const Kernels* avx512 = avx512_kernels();
    if (avx512 == nullptr) return unsupported("KV_KERNELS=avx512: this machine lacks AVX-512 VNNI");
    return avx512;
  }
  return invalid_argument(std::string("KV_KERNELS=") + wanted +
                          ": expected scalar, avx2 or avx512");
}

}  // namespace kv
