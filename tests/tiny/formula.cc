// SplitMix64 and the table of offsets and scales. See formula.h.
#include "tests/tiny/formula.h"

#include <cmath>
#include <string_view>

namespace kv::tiny {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15ull;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct Range {
  float offset, scale;
};

Range range_of(std::string_view name, size_t rank, uint32_t fan_in, bool zero_centred) {
  auto has = [&](std::string_view piece) { return name.find(piece) != name.npos; };
  if (name.ends_with("norm.weight")) {
    return {zero_centred && !has(".linear_attn.") ? 0.0f : 1.0f, 0.25f};
  }
  if (name.ends_with("A_log")) return {-3.0f, 1.0f};  // states that last for some 30 tokens
  if (name.ends_with("e_score_correction_bias")) return {0.0f, 0.25f};
  if (name.ends_with("position_bias")) return {0.0f, 1.0f};
  if (name.ends_with("embed_tokens.weight")) return {0.0f, 1.75f};
  if (name.ends_with("scale")) return {1.0f, 0.25f};
  if (rank == 1) return {0.0f, 1.0f};  // other biases, attention sinks
  bool query = has("q_b_proj") || has("q_proj");
  double gain = name == "lm_head.weight" ? 3.0 : query ? 2.0 : 1.0;
  return {0.0f, static_cast<float>(gain * std::sqrt(3.0 / fan_in))};
}

}  // namespace

std::vector<uint64_t> Formula::bits(const std::string& name, size_t count) const {
  uint64_t state = 0xCBF29CE484222325ull;
  for (char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  state += seed_ * kGamma;
  std::vector<uint64_t> out(count);
  for (uint64_t& value : out) value = mix(state += kGamma);
  return out;
}

std::vector<float> Formula::tensor(const std::string& name,
                                   std::initializer_list<uint32_t> shape) const {
  size_t count = 1;
  for (uint32_t size : shape) count *= size;
  Range range = range_of(name, shape.size(), *(shape.end() - 1), zero_centred_);
  std::vector<float> out;
  out.reserve(count);
  for (uint64_t b : bits(name, count)) {
    float u = static_cast<float>(b >> 40) * 0x1p-23f - 1.0f;
    float scaled = range.scale * u;
    out.push_back(range.offset + scaled);
  }
  return out;
}

std::vector<uint32_t> Formula::integers(const std::string& name, uint32_t count,
                                        uint32_t below) const {
  std::vector<uint32_t> out;
  for (uint64_t b : bits(name, count)) out.push_back(static_cast<uint32_t>((b >> 40) % below));
  return out;
}

std::vector<Token> Formula::prompt(uint32_t count) const {
  std::vector<Token> out;
  for (uint64_t b : bits("prompt", count)) out.push_back(static_cast<Token>(b >> 56));
  return out;
}

}  // namespace kv::tiny
