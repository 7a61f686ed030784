// Layer-by-layer prefill on OpenBLAS. See prefill.h.
#include "engine/prefill.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "codec/kernels.h"
#include "engine/kernels.h"
#include "engine/layer_ops.h"

namespace kv {
namespace {

constexpr uint32_t kTileColumns = 192;  // outputs of one product task
constexpr uint32_t kFfnChunks = 8;      // chunks whose inner rows are held at a time
constexpr uint32_t kShortRow = 1024;    // values of a row of which 8 fit in the L1 cache
constexpr float kMasked = -1e30f;
constexpr uint32_t kLeastChunk = 64;  // rows; shorter ones cost nearly as much

// One product task: out (block, n) of rows `columns` and `stride` apart = in times w^T. The
// engine's own AVX-512 kernels beat Debian's OpenBLAS, which knows no newer AMD machine and takes
// AVX2.
void block_product(const float* in, const float* w, uint32_t block, uint32_t n, uint32_t columns,
                   float* out, uint32_t stride) {
  if (&engine_kernels() == avx512_engine_kernels()) {
    const uint32_t together = columns <= kShortRow ? 8 : 4;  // rows that fit in the L1 cache
    const auto* weights = reinterpret_cast<const uint8_t*>(w);
    const TypeKernels kernels = engine_kernels().of(TensorType::f32);
    for (uint32_t b = 0; b < block; b += together) {
      kernels.multiply(weights, columns * sizeof(float), n, columns,
                       {in + size_t{b} * columns, columns, std::min(together, block - b)},
                       out + size_t{b} * stride, stride);
    }
    return;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(block), static_cast<int>(n),
              static_cast<int>(columns), 1.0f, in, static_cast<int>(columns), w,
              static_cast<int>(columns), 0.0f, out, static_cast<int>(stride));
}

}  // namespace

uint32_t chunk_tokens(const Profile& profile) {
  const uint32_t block = profile.block_tokens;
  if (profile.prefill == PrefillMode::coded) return block;  // each on the codes of the one before
  return (kLeastChunk + block - 1) / block * block;
}

Prefill::Prefill(const Model& model, Threads& threads, uint32_t chunk_tokens)
    : model_(model),
      threads_(threads),
      block_(chunk_tokens),
      stride_((chunk_tokens + 7) / 8 * 8),
      scratch_(threads.count()) {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

Status Prefill::extend(std::span<const Token> tokens, KvCache& cache, Deadline deadline) {
  uint32_t first = cache.tokens();
  auto source = [&](uint32_t layer, Side side, uint32_t from, float* out) {
    return cache.decode(layer, 0, side, {from, first}, out);
  };
  auto sink = [&](uint32_t layer, uint32_t rows, const float* k, const float* v) -> Status {
    KV_RETURN_IF_ERROR(cache.append(layer, 0, rows, k, v));
    return cache.seal(layer);
  };
  KV_RETURN_IF_ERROR(run(tokens, first, source, sink, deadline));
  cache.advance(tokens.subspan(first));
  return {};
}

// Buffers, and the embeddings of the computed rows; padding rows are zero.
void Prefill::start(std::span<const Token> tokens, uint32_t first) {
  const ModelShape& s = model_.shape();
  first_ = first;
  end_ = static_cast<uint32_t>(tokens.size());
  base_ = first / block_ * block_;
  chunks_ = (end_ - base_ + block_ - 1) / block_;
  size_t rows = size_t{chunks_} * block_, kv_width = size_t{s.kv_heads} * s.head_dim;
  size_t q_width = size_t{s.heads} * s.head_dim;
  size_t inner = std::min(rows, size_t{kFfnChunks} * block_) * s.ffn;
  x_.assign(rows * s.width, 0.0f);
  norm_.resize(rows * std::max<size_t>(s.width, q_width));
  q_.resize(rows * q_width);
  k_.assign((base_ + rows) * kv_width, 0.0f);
  v_.assign((base_ + rows) * kv_width, 0.0f);
  gate_.resize(inner);
  up_.resize(inner);
  sum_.resize(rows * s.width);
  for (auto& rope : rope_) rope.resize(size_t{end_ - first_} * s.head_dim);
  threads_.run(chunks_, [&](uint32_t task, uint32_t) {
    uint32_t from = std::max(first_, base_ + task * block_);
    for (uint32_t p = from; p < std::min(end_, base_ + (task + 1) * block_); ++p) {
      embed(model_, tokens[p], x_.data() + size_t{p - base_} * s.width);
      for (int kind = 0; kind < 2; ++kind) {
        model_.rope(kind != 0, p, rope_[kind].data() + size_t{p - first_} * s.head_dim);
      }
    }
  });
}

void Prefill::widen(const Matrix& w, Floats& out) {
  out.resize(size_t{w.rows} * w.columns);
  constexpr uint32_t kRows = 64;
  threads_.run((w.rows + kRows - 1) / kRows, [&](uint32_t task, uint32_t) {
    for (uint32_t r = task * kRows; r < std::min(w.rows, (task + 1) * kRows); ++r) {
      dequantise_row(w, r, out.data() + size_t{r} * w.columns);
    }
  });
}

void Prefill::dequantise(const LayerWeights& layer) {
  widen(layer.q, weights_.q);
  widen(layer.k, weights_.k);
  widen(layer.v, weights_.v);
  widen(layer.o, weights_.o);
  widen(layer.gate, weights_.gate);
  widen(layer.up, weights_.up);
  widen(layer.down, weights_.down);
}

// out (count * block, rows) = in (count * block, columns) times w^T, for `count` whole chunks.
void Prefill::product(const float* in, const Floats& w, uint32_t rows, uint32_t columns, float* out,
                      uint32_t count) {
  uint32_t tiles = (rows + kTileColumns - 1) / kTileColumns;
  threads_.run(count * tiles, [&](uint32_t task, uint32_t) {
    size_t row = size_t{task / tiles} * block_;
    uint32_t first = task % tiles * kTileColumns, n = std::min(kTileColumns, rows - first);
    block_product(in + row * columns, w.data() + size_t{first} * columns, block_, n, columns,
                  out + row * rows + first, rows);
  });
}

void Prefill::normalise(std::span<const float> weight) {
  threads_.run(chunks_ * 4, [&](uint32_t task, uint32_t) {
    size_t width = weight.size(), quarter = (block_ + 3) / 4;
    size_t chunk = size_t{task / 4} * block_, from = task % 4 * quarter;
    for (size_t r = from; r < std::min<size_t>(from + quarter, block_); ++r) {
      rms_norm(x_.data() + (chunk + r) * width, weight, model_.shape().rms_eps,
               norm_.data() + (chunk + r) * width);
    }
  });
}

Status Prefill::keys_and_values(uint32_t layer, const LayerSource& source, bool need_queries) {
  const ModelShape& s = model_.shape();
  uint32_t kv_width = s.kv_heads * s.head_dim, q_width = s.heads * s.head_dim;
  normalise(model_.layers()[layer].attn_norm);
  product(norm_.data(), weights_.k, kv_width, s.width, k_.data() + size_t{base_} * kv_width,
          chunks_);
  product(norm_.data(), weights_.v, kv_width, s.width, v_.data() + size_t{base_} * kv_width,
          chunks_);
  if (need_queries) product(norm_.data(), weights_.q, q_width, s.width, q_.data(), chunks_);
  rotate(layer, need_queries);
  if (first_ == 0) return {};
  // Also over the first chunk's padding. What a window no longer reaches is masked.
  uint32_t from = window_ != 0 && first_ >= window_ ? first_ + 1 - window_ : 0;
  size_t at = size_t{from} * kv_width;
  KV_RETURN_IF_ERROR(source(layer, Side::k, from, k_.data() + at));
  return source(layer, Side::v, from, v_.data() + at);
}

// Norms and rotations of the computed rows' heads.
void Prefill::rotate(uint32_t layer, bool need_queries) {
  const ModelShape& s = model_.shape();
  const LayerWeights& weights = model_.layers()[layer];
  size_t kv_width = size_t{s.kv_heads} * s.head_dim, q_width = size_t{s.heads} * s.head_dim;
  std::span<const float> rope(rope_[s.windowed(layer) ? 1 : 0]);
  threads_.run(chunks_, [&](uint32_t task, uint32_t) {
    uint32_t from = std::max(first_, base_ + task * block_);
    for (uint32_t p = from; p < std::min(end_, base_ + (task + 1) * block_); ++p) {
      auto at = rope.subspan(size_t{p - first_} * s.head_dim, s.head_dim);
      finish_heads(s, weights.k_norm, at, s.kv_heads, k_.data() + p * kv_width);
      if (!need_queries) continue;
      finish_heads(s, weights.q_norm, at, s.heads, q_.data() + (p - base_) * q_width);
    }
  });
}

// One tile of block x block scores of one head, folded into the running softmax.
void Prefill::attend_tile(uint32_t chunk, uint32_t head, uint32_t tile, Scratch& t) {
  const ModelShape& s = model_.shape();
  const Kernels& kernels = engine_codec_kernels();
  int block = static_cast<int>(block_), stride = static_cast<int>(stride_);
  int dim = static_cast<int>(s.head_dim);
  int q_width = static_cast<int>(s.heads * s.head_dim);
  int kv_width = static_cast<int>(s.kv_heads * s.head_dim);
  size_t kv_at = size_t{tile} * block_ * kv_width + head / (s.heads / s.kv_heads) * s.head_dim;
  const float* q = q_.data() + size_t{chunk} * block_ * q_width + head * s.head_dim;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, block, block, dim, attention_scale(s), q,
              q_width, k_.data() + kv_at, kv_width, 0.0f, t.scores.data(), stride);
  mask(base_ + chunk * block_, tile, t);
  for (uint32_t r = 0; r < block_; ++r) {
    float* row = t.scores.data() + size_t{r} * stride_;
    std::fill(row + block_, row + stride_, kMasked);
    float largest = std::max(t.largest[r], kernels.largest(row, stride_));
    // 0 after tiles that were all masked: what they left in sum and heads vanishes.
    float keep = std::exp(t.largest[r] - largest);
    t.sum[r] = t.sum[r] * keep + kernels.exp_weights(row, stride_, largest);
    t.largest[r] = largest;
    float* out = t.heads.data() + size_t{r} * s.head_dim;
    if (keep != 1.0f) {
      for (uint32_t j = 0; j < s.head_dim; ++j) out[j] *= keep;
    }
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, block, dim, block, 1.0f, t.scores.data(),
              stride, v_.data() + kv_at, kv_width, 1.0f, t.heads.data(), dim);
}

// Columns of a tile's scores that the rows from first_position on don't see.
void Prefill::mask(uint32_t first_position, uint32_t tile, Scratch& t) const {
  uint32_t first_column = tile * block_;
  bool diagonal = first_column == first_position;
  if (!diagonal && (window_ == 0 || first_column + window_ >= first_position + block_)) return;
  for (uint32_t r = 0; r < block_; ++r) {
    float* row = t.scores.data() + size_t{r} * stride_;
    if (diagonal) std::fill(row + r + 1, row + block_, kMasked);
    uint32_t seen = window_ == 0 ? 0 : std::max(first_position + r + 1, window_) - window_;
    if (seen > first_column) std::fill_n(row, std::min(seen - first_column, block_), kMasked);
  }
}

void Prefill::attend_head(uint32_t chunk, uint32_t head, Scratch& t) {
  const ModelShape& s = model_.shape();
  t.scores.resize(size_t{block_} * stride_);
  t.heads.assign(size_t{block_} * s.head_dim, 0.0f);
  t.largest.assign(block_, kMasked);
  t.sum.assign(block_, 0.0f);
  uint32_t last = base_ / block_ + chunk;
  uint32_t oldest = last * block_ + 1;  // what the first row sees begins a window before this
  uint32_t first = window_ != 0 && oldest > window_ ? (oldest - window_) / block_ : 0;
  for (uint32_t tile = first; tile <= last; ++tile) attend_tile(chunk, head, tile, t);
  size_t q_width = size_t{s.heads} * s.head_dim;
  for (uint32_t r = 0; r < block_; ++r) {
    float* out = norm_.data() + (size_t{chunk} * block_ + r) * q_width + head * s.head_dim;
    for (uint32_t j = 0; j < s.head_dim; ++j) {
      out[j] = t.heads[size_t{r} * s.head_dim + j] / t.sum[r];
    }
  }
}

// x += attention of all rows; the last chunks, which have most tiles, go first.
void Prefill::attention(uint32_t layer) {
  const ModelShape& s = model_.shape();
  threads_.run(chunks_ * s.heads, [&](uint32_t task, uint32_t worker) {
    attend_head(chunks_ - 1 - task / s.heads, task % s.heads, scratch_[worker]);
  });
  product(norm_.data(), weights_.o, s.width, s.heads * s.head_dim, sum_.data(), chunks_);
  add_branches(model_.layers()[layer].post_attention_norm);
}

void Prefill::add_branches(std::span<const float> norm) {
  const ModelShape& s = model_.shape();
  threads_.run(chunks_ * 4, [&](uint32_t task, uint32_t) {
    size_t rows = size_t{chunks_} * block_, share = rows / (chunks_ * 4);
    size_t end = task + 1 == chunks_ * 4 ? rows : (task + 1) * share;
    for (size_t r = task * share; r < end; ++r) {
      add_branch(s, norm, sum_.data() + r * s.width, x_.data() + r * s.width);
    }
  });
}

void Prefill::feed_forward(const LayerWeights& layer) {
  const ModelShape& s = model_.shape();
  normalise(layer.ffn_norm);
  for (uint32_t chunk = 0; chunk < chunks_; chunk += kFfnChunks) {
    uint32_t count = std::min(kFfnChunks, chunks_ - chunk);
    const float* in = norm_.data() + size_t{chunk} * block_ * s.width;
    product(in, weights_.gate, s.ffn, s.width, gate_.data(), count);
    product(in, weights_.up, s.ffn, s.width, up_.data(), count);
    threads_.run(count * block_, [&](uint32_t row, uint32_t worker) {
      auto& work = scratch_[worker].work;
      work.resize(s.ffn);
      gate_times(s, gate_.data() + size_t{row} * s.ffn, up_.data() + size_t{row} * s.ffn,
                 work.data(), engine_codec_kernels());
    });
    product(gate_.data(), weights_.down, s.width, s.ffn,
            sum_.data() + size_t{chunk} * block_ * s.width, count);
  }
  add_branches(layer.post_ffn_norm);
}

Status Prefill::run(std::span<const Token> tokens, uint32_t first, const LayerSource& source,
                    const LayerSink& sink, Deadline deadline, bool keep_hidden) {
  const ModelShape& s = model_.shape();
  if (tokens.size() > s.context || first >= tokens.size()) {
    return invalid_argument("prefill of tokens [" + std::to_string(first) + ", " +
                            std::to_string(tokens.size()) + "), context " +
                            std::to_string(s.context));
  }
  for (Token t : tokens) {
    if (t < 0 || static_cast<uint32_t>(t) >= s.vocab) {
      return invalid_argument("token id " + std::to_string(t) + " outside the vocabulary");
    }
  }
  start(tokens, first);
  size_t kv_at = size_t{first_} * s.kv_heads * s.head_dim;
  for (uint32_t l = 0; l < s.layers; ++l) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return {StatusCode::deadline_exceeded, "prefill: at layer " + std::to_string(l)};
    }
    bool whole = l + 1 < s.layers || keep_hidden;  // the last layer's outputs nobody needs
    window_ = s.windowed(l) ? s.window : 0;
    dequantise(model_.layers()[l]);
    KV_RETURN_IF_ERROR(keys_and_values(l, source, whole));
    size_t q_at = size_t{first_ - base_} * s.heads * s.head_dim;
    if (watch_ && whole) watch_(l, q_.data() + q_at);
    KV_RETURN_IF_ERROR(sink(l, end_ - first_, k_.data() + kv_at, v_.data() + kv_at));
    if (!whole) break;
    attention(l);
    feed_forward(model_.layers()[l]);
  }
  return {};
}

const float* Prefill::hidden(uint32_t position) const {
  KV_CHECK(position >= first_ && position < end_);
  return x_.data() + size_t{position - base_} * model_.shape().width;
}

}  // namespace kv
