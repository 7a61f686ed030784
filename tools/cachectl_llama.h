// llama.cpp itself as a row of `cachectl quality`: its predictions on its own quantised cache
// against those on its fp16 one. One thread; runs a program (tools/quality_llama.py) beside.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/teacher.h"
#include "proto/status.h"

namespace kv::cachectl {

/// A type of llama.cpp's cache, for K and V alike.
struct LlamaType {
  const char* name;
  double ratio;  ///< bytes over fp16
};
inline constexpr LlamaType kLlamaTypes[] = {{"q8_0", 34.0 / 64}, {"q4_0", 18.0 / 64}};
/// Tokens at a time: a multiple of them are a block.
inline constexpr uint32_t kLlamaBatch = 64;
static_assert(kTeacherBlock % kLlamaBatch == 0);

struct LlamaProgram {
  std::string command;  ///< of a shell, e.g. "python tools/quality_llama.py"; gets arguments behind
  std::string model;    ///< path of the GGUF file
  uint32_t threads = 1;
  uint32_t vocab = 0;  ///< logits per position that it must give
};

/// Forces `tokens` through the program; per kLlamaTypes the divergence of positions
/// kTeacherBlock … tokens - 1, the protocol *whole* by rows. Returns: io_error if the program can't
/// be started, ends early, gives too much or fails, or has another vocabulary.
Result<std::vector<Divergence>> llama_divergences(const LlamaProgram& program,
                                                  std::span<const Token> tokens);

}  // namespace kv::cachectl
