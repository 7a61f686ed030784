// Which kernels run: the machine's best, or what KV_KERNELS asks for.
#include "codec/kernels.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace kv {

Result<const Kernels*> select_kernels() {
  const char* wanted = std::getenv("KV_KERNELS");
  if (wanted == nullptr || *wanted == '\0') {
    const Kernels* best = avx2_kernels();
    return best != nullptr ? best : &scalar_kernels();
  }
  if (std::strcmp(wanted, "scalar") == 0) return &scalar_kernels();
  if (std::strcmp(wanted, "avx2") == 0) {
    const Kernels* avx2 = avx2_kernels();
    if (avx2 == nullptr)
      return unsupported("KV_KERNELS=avx2: this machine lacks AVX2, FMA or F16C");
    return avx2;
  }
  return invalid_argument(std::string("KV_KERNELS=") + wanted + ": expected scalar or avx2");
}

}  // namespace kv
