// What the tiny models share, and their catalogue. See tiny_model.h.
#include "tests/tiny/tiny_model.h"

#include <algorithm>
#include <cmath>

#include "tests/tiny/deepseek_v3.h"
#include "tests/tiny/deepseek_v4.h"
#include "tests/tiny/llama.h"
#include "tests/tiny/qwen3_next.h"
#include "tests/tiny/state.h"

namespace kv::tiny {
namespace {

PartSpec window(uint32_t size, uint32_t keep) {
  PartSpec p;
  p.kind = PartKind::window;
  p.window = size;
  p.keep = keep;
  return p;
}

PartSpec chunk(uint32_t size) {
  PartSpec p;
  p.kind = PartKind::chunk;
  p.chunk = size;
  return p;
}

RowLimit seen_by(const PartSpec& part, uint32_t position) {
  RowLimit limit;
  limit.end = position + 1;
  if (part.kind == PartKind::window) {
    limit.first = limit.end - std::min(part.window, limit.end);
    limit.keep = part.keep;
  }
  if (part.kind == PartKind::chunk) limit.first = position / part.chunk * part.chunk;
  return limit;
}

}  // namespace

TinyModel::TinyModel(const std::string& name, uint64_t seed) {
  spec_.name = "tiny-" + name;
  std::string identity = "formula 1, " + name + ", seed " + std::to_string(seed);
  spec_.fingerprint = sha256({reinterpret_cast<const uint8_t*>(identity.data()), identity.size()});
}

Result<std::vector<Token>> TinyModel::encode(std::string_view text) const {
  std::vector<Token> ids;
  for (char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

Status TinyModel::step(Token token, KvCache& cache, std::span<float> logits) {
  if (token < 0 || static_cast<uint32_t>(token) >= kVocabulary) {
    return invalid_argument("token " + std::to_string(token) + " outside the vocabulary of " +
                            std::to_string(kVocabulary));
  }
  if (cache.tokens() >= kPositions) {
    return invalid_argument("context full: " + std::to_string(kPositions) + " positions");
  }
  KV_RETURN_IF_ERROR(compute(token, cache, logits));
  for (uint32_t l = 0; l < spec_.layers.size(); ++l) KV_RETURN_IF_ERROR(cache.seal(l));
  cache.advance({&token, 1});
  return {};
}

Status TinyModel::prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) {
  while (cache.tokens() < tokens.size()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return {StatusCode::deadline_exceeded,
              "prefill: after " + std::to_string(cache.tokens()) + " tokens"};
    }
    KV_RETURN_IF_ERROR(step(tokens[cache.tokens()], cache, {}));
  }
  return {};
}

Status TinyModel::check(KvCache& cache) const {
  for (uint32_t l = 0; l < spec_.layers.size(); ++l) {
    for (uint32_t p = 0; p < spec_.layers[l].parts.size(); ++p) {
      const PartSpec& part = spec_.layers[l].parts[p];
      if (part.kind != PartKind::pooled && part.kind != PartKind::state) continue;
      KV_RETURN_IF_ERROR(load_state(cache, l, p).status());
    }
  }
  return {};
}

void attend_part(const AttentionRows& rows, uint32_t position, std::span<const float> q,
                 std::span<float> out) {
  const PartSpec& part = rows.codec().model().layers[rows.layer()].parts[rows.part()];
  size_t group = q.size() / part.k_dim / part.heads;
  float scale = 1.0f / std::sqrt(static_cast<float>(part.k_dim));
  std::vector<RowLimit> limits(group, seen_by(part, position));
  PreparedQueries queries;
  AttentionScratch scratch;
  for (uint32_t h = 0; h < part.heads; ++h) {
    queries.prepare(rows.codec(), rows.layer(), rows.part(), h,
                    q.subspan(h * group * part.k_dim, group * part.k_dim), scale, limits);
    attend(queries, rows, scratch, out.subspan(h * group * part.v_dim, group * part.v_dim));
  }
}

Ends::Ends(const Formula& f, bool zero_centred)
    : embedding_(f.tensor("model.embed_tokens.weight", {kVocabulary, kWidth})),
      norm_(f.tensor("model.norm.weight", {kWidth})),
      head_(f, "lm_head.weight", kVocabulary, kWidth),
      zero_centred_(zero_centred) {}

std::vector<float> Ends::embed(Token token) const {
  auto first = embedding_.begin() + ptrdiff_t{token} * kWidth;
  return {first, first + kWidth};
}

void Ends::logits(std::vector<float>& x, std::span<float> out) const {
  if (out.empty()) return;
  rms_norm(x, norm_, zero_centred_);
  head_.apply(x.data(), out.data());
}

Result<std::unique_ptr<Network>> make_tiny(const std::string& name, uint64_t seed) {
  using Made = std::unique_ptr<Network>;
  if (name == "sinks") {
    return Made(std::make_unique<Llama>(
        name, seed, std::vector{window(48, 4), window(20, 7), PartSpec(), window(48, 4)}));
  }
  if (name == "chunks") {
    return Made(std::make_unique<Llama>(name, seed,
                                        std::vector{chunk(80), chunk(80), PartSpec(), chunk(50)}));
  }
  if (name == "deepseek_v3") return Made(std::make_unique<DeepseekV3>(seed));
  if (name == "deepseek_v4") return Made(std::make_unique<DeepseekV4>(seed));
  if (name == "qwen3_next") return Made(std::make_unique<Qwen3Next>(seed));
  return unsupported("tiny model '" + name + "'");
}

}  // namespace kv::tiny
