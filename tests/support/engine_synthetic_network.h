// SyntheticNetwork: a network of random projections for any geometry. Every row, carry and state
// that a cache of n tokens holds moves its logits, so one that is wrong or missing shows. Its
// prefill works layer by layer on a slightly different input than its steps, as real ones' sums
// differ: what was prefilled and what was decoded are told apart.
#pragma once

#include <cmath>
#include <cstring>

#include "engine/network.h"

namespace kv {

class SyntheticNetwork : public Network {
 public:
  static constexpr uint32_t kWidth = 48, kVocab = 64, kContext = 2048;

  explicit SyntheticNetwork(ModelSpec spec) : spec_(std::move(spec)) {}

  const ModelSpec& spec() const override { return spec_; }
  uint32_t vocab() const override { return kVocab; }
  uint32_t context() const override { return kContext; }

  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    KV_RETURN_IF_ERROR(stretch({&token, 1}, cache, 1.0f));
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = project(900, i, x_.data(), kWidth);
    return {};
  }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline) override {
    while (cache.tokens() < tokens.size()) {
      auto end = std::min<size_t>(tokens.size(), cache.advance_limit());
      auto part = tokens.subspan(cache.tokens(), end - cache.tokens());
      KV_RETURN_IF_ERROR(stretch(part, cache, 1.001f));
    }
    return {};
  }
  Status check(KvCache& cache) const override {
    for (uint32_t l = 0; l < spec_.layers.size(); ++l) {
      for (uint32_t p = 0; p < spec_.layers[l].parts.size(); ++p) {
        const PartSpec& part = spec_.layers[l].parts[p];
        if (part.has_rows() && part.kind != PartKind::pooled) continue;
        size_t unit = kWidth * sizeof(float), size = cache.state(l, p).size();
        if (size % unit != 0 || (!part.has_rows() && size != unit)) {
          return invalid_argument("a state of " + std::to_string(size) + " bytes");
        }
      }
    }
    return {};
  }

 private:
  // Sum over x of fixed random weights in (-1, 1), scaled to keep sizes.
  static float project(uint64_t name, uint64_t row, const float* x, size_t n) {
    float sum = 0;
    uint64_t h = (name * 0x9E3779B97F4A7C15ull) ^ (row * 0xD6E8FEB86659FD93ull);
    for (size_t i = 0; i < n; ++i) {
      h = h * 6364136223846793005ull + 1442695040888963407ull;
      sum += x[i] * (static_cast<float>(static_cast<int32_t>(h >> 32)) * 0x1p-31f);
    }
    return sum * 1.7f / std::sqrt(static_cast<float>(n));
  }
  std::vector<float> projected(uint64_t name, size_t rows, const float* x) const {
    std::vector<float> out(rows);
    for (size_t r = 0; r < rows; ++r) out[r] = project(name, r, x, kWidth);
    return out;
  }
  void add(float* x, uint64_t name, const std::vector<float>& in) const {
    for (size_t i = 0; i < kWidth; ++i) x[i] += project(name, i, in.data(), in.size());
  }

  Status stretch(std::span<const Token> tokens, KvCache& cache, float scale) {
    uint32_t first = cache.tokens();
    x_.resize(tokens.size() * kWidth);
    for (size_t t = 0; t < tokens.size(); ++t) {
      float seed[2] = {static_cast<float>(tokens[t] + 1) * 0.37f,
                       std::sin(static_cast<float>(first + t))};
      for (size_t i = 0; i < kWidth; ++i) {
        x_[t * kWidth + i] = scale * std::sin(3 * project(1, i, seed, 2));
      }
    }
    for (uint32_t l = 0; l < spec_.layers.size(); ++l) {
      for (uint32_t p = 0; p < spec_.layers[l].parts.size(); ++p) {
        KV_RETURN_IF_ERROR(part(l, p, first, static_cast<uint32_t>(tokens.size()), cache));
      }
      for (size_t t = 0; t < tokens.size(); ++t) normalise(x_.data() + t * kWidth);
    }
    for (uint32_t l = 0; l < spec_.layers.size(); ++l) KV_RETURN_IF_ERROR(cache.seal(l));
    cache.advance(tokens);
    return {};
  }
  static void normalise(float* x) {
    float square = 1e-6f;
    for (size_t i = 0; i < kWidth; ++i) square += x[i] * x[i];
    for (size_t i = 0; i < kWidth; ++i) x[i] /= std::sqrt(square / kWidth);
  }

  Status part(uint32_t l, uint32_t p, uint32_t first, uint32_t count, KvCache& cache) {
    const PartSpec& spec = spec_.layers[l].parts[p];
    uint64_t name = 100 + l * 40 + p * 8;
    if (!spec.has_rows()) return recurrent(l, p, name, count, cache);
    if (spec.kind == PartKind::pooled) return pooled(l, p, name, first, count, cache);
    if (spec.v_dim == 0) return one_storage(l, p, name, first, count, cache);
    std::vector<float> k, v;
    for (uint32_t t = 0; t < count; ++t) {
      auto kt = projected(name, spec.heads * spec.k_dim, x_.data() + t * kWidth);
      auto vt = projected(name + 1, spec.heads * spec.v_dim, x_.data() + t * kWidth);
      k.insert(k.end(), kt.begin(), kt.end());
      v.insert(v.end(), vt.begin(), vt.end());
    }
    KV_RETURN_IF_ERROR(cache.append(l, p, count, k.data(), v.data()));
    for (uint32_t t = 0; t < count; ++t) {
      auto q = projected(name + 2, spec.heads * spec.k_dim, x_.data() + t * kWidth);
      std::vector<float> out(spec.heads * spec.v_dim);
      RowLimit limit = limit_of(spec, first + t);
      for (uint32_t h = 0; h < spec.heads; ++h) {
        queries_.prepare(cache.codec(), l, p, h, {q.data() + h * spec.k_dim, spec.k_dim}, 0.3f,
                         {&limit, 1});
        attend(queries_, cache.rows(l, p), scratch_,
               std::span<float>(out).subspan(h * spec.v_dim, spec.v_dim));
      }
      add(x_.data() + t * kWidth, name + 3, out);
    }
    return {};
  }
  // What the token at `position` sees.
  static RowLimit limit_of(const PartSpec& spec, uint32_t position) {
    RowLimit limit{position + 1, 0, spec.keep};
    if (spec.kind == PartKind::window && position + 1 > spec.window) {
      limit.first = position + 1 - spec.window;
    }
    if (spec.kind == PartKind::chunk) limit.first = position / spec.chunk * spec.chunk;
    return limit;
  }

  Status one_storage(uint32_t l, uint32_t p, uint64_t name, uint32_t first, uint32_t count,
                     KvCache& cache) {
    const PartSpec& spec = spec_.layers[l].parts[p];
    std::vector<float> rows;
    for (uint32_t t = 0; t < count; ++t) {
      auto row = projected(name, spec.heads * spec.k_dim, x_.data() + t * kWidth);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    KV_RETURN_IF_ERROR(cache.append_rows(l, p, count, rows.data()));
    for (uint32_t t = 0; t < count; ++t) {
      look(cache.values(l, p), limit_of(spec, first + t), name, x_.data() + t * kWidth);
    }
    return {};
  }
  // x += softmax attention over the rows in the limit.
  void look(const ValueRows& rows, const RowLimit& limit, uint64_t name, float* x) const {
    auto q = projected(name + 2, rows.width, x);
    std::vector<float> out(rows.width);
    float weights = 1;  // of nothing
    for (uint32_t r = 0; r < limit.end; ++r) {
      if (r >= limit.keep && r < limit.first) r = limit.first;
      if (r >= limit.end) break;
      float score = 0;
      for (uint32_t i = 0; i < rows.width; ++i) score += 0.2f * q[i] * rows.row(r)[i];
      float weight = std::exp(std::min(score, 20.0f));
      weights += weight;
      for (uint32_t i = 0; i < rows.width; ++i) out[i] += weight * rows.row(r)[i];
    }
    for (float& o : out) o /= weights;
    add(x, name + 3, out);
  }

  static std::vector<float> floats(const std::vector<uint8_t>& bytes) {
    std::vector<float> out(bytes.size() / sizeof(float));
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  static void set(std::vector<uint8_t>& bytes, const std::vector<float>& values) {
    bytes.resize(values.size() * sizeof(float));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  // The carry is the inputs since the last group's end, after those of that group with overlap.
  Status pooled(uint32_t l, uint32_t p, uint64_t name, uint32_t first, uint32_t count,
                KvCache& cache) {
    const PartSpec& spec = spec_.layers[l].parts[p];
    std::vector<float> carry = floats(cache.state(l, p));
    for (uint32_t t = 0; t < count; ++t) {
      uint32_t position = first + t;
      float* x = x_.data() + t * kWidth;
      if (position % spec.rate == 0) {  // begins a group
        size_t previous = spec.overlap && position > 0 ? spec.rate * kWidth : 0;
        carry.erase(carry.begin(), carry.end() - static_cast<ptrdiff_t>(previous));
      }
      carry.insert(carry.end(), x, x + kWidth);
      if ((position + 1) % spec.rate == 0) {
        std::vector<float> sum(kWidth);
        for (size_t i = 0; i < carry.size(); ++i) {
          sum[i % kWidth] += carry[i] * static_cast<float>(1 + i / kWidth) * 0.1f;
        }
        auto row = projected(name, spec.k_dim, sum.data());
        KV_RETURN_IF_ERROR(cache.append_rows(l, p, 1, row.data()));
      }
      look(cache.values(l, p), {(position + 1) / spec.rate, 0, 0}, name, x);
      add(x, name + 4, carry);
    }
    set(cache.state(l, p), carry);
    return {};
  }
  Status recurrent(uint32_t l, uint32_t p, uint64_t name, uint32_t count, KvCache& cache) {
    std::vector<float> state = floats(cache.state(l, p));
    state.resize(kWidth);
    for (uint32_t t = 0; t < count; ++t) {
      float* x = x_.data() + t * kWidth;
      auto in = projected(name, kWidth, x);
      for (size_t i = 0; i < kWidth; ++i) state[i] = 0.9f * state[i] + in[i];
      add(x, name + 3, state);
    }
    set(cache.state(l, p), state);
    return {};
  }

  ModelSpec spec_;
  std::vector<float> x_;
  PreparedQueries queries_;
  AttentionScratch scratch_;
};

}  // namespace kv
