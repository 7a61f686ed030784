// Networks of three layers of tiny_gguf.h's model, and prompts for them.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "engine/model_network.h"
#include "tests/support/tiny_gguf.h"

namespace kv {

/// A network of three layers; architecture: "llama" or "gemma3".
inline std::unique_ptr<Network> tiny_network(const char* architecture) {
  TinyGguf tiny;
  tiny.architecture = architecture;
  tiny.layers = 3;
  auto file = GgufFile::parse(Bytes::owning(tiny.write()));
  KV_CHECK(file.ok());
  auto model = Model::load(std::move(*file));
  KV_CHECK(model.ok());
  return *make_network(*model, 2);
}

/// Tokens of single bytes, by chance.
inline std::vector<Token> byte_tokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> out(count);
  for (Token& t : out) t = static_cast<Token>(random() % 256);
  return out;
}

}  // namespace kv
