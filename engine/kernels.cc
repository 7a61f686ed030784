// Scalar kernels and the choice of a set. See kernels.h.
#include "engine/kernels.h"

#include <string_view>

#include "codec/kernels.h"
#include "engine/panel_tiles.h"
#include "engine/rounded.h"

namespace kv {

#if !defined(__x86_64__)
const EngineKernels* avx2_engine_kernels() { return nullptr; }
const EngineKernels* avx512_engine_kernels() { return nullptr; }
#endif

const EngineKernels& scalar_engine_kernels() {
  static constexpr EngineKernels kScalar = {
      "scalar", 4, scalar_panels, round_row, scalar_band_product, scalar_transpose};
  return kScalar;
}

const EngineKernels& engine_kernels() {
  static const EngineKernels& chosen = []() -> const EngineKernels& {
    auto codec = select_kernels();
    bool scalar = !codec.ok() || std::string_view((*codec)->name) == "scalar";
    if (scalar || avx2_engine_kernels() == nullptr) return scalar_engine_kernels();
    return *codec == avx512_kernels() ? *avx512_engine_kernels() : *avx2_engine_kernels();
  }();
  return chosen;
}

const Kernels& engine_codec_kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    auto codec = select_kernels();
    return codec.ok() ? **codec : scalar_kernels();
  }();
  return chosen;
}

}  // namespace kv
