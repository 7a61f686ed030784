// Layer-by-layer prefill. See prefill.h.
#include "engine/prefill.h"

#include <algorithm>

#include "engine/kernels.h"
#include "engine/layer_ops.h"
#include "engine/strips.h"

namespace kv {
namespace {

constexpr uint32_t kRowsAtOnce = 480;   // rows of a product for which a band is widened once
constexpr uint32_t kLinesAtOnce = 128;  // of a band: half of an L1 cache
constexpr uint32_t kPieceRows = 2 * kRowsAtOnce;  // of which all of a layer is held at a time
constexpr uint32_t kRowsOfTask = 8;

// Rows a multiple of 1 KiB apart would share the same few lines of a cache.
size_t apart(uint32_t values) { return values % 256 == 0 ? values + 16 : values; }

}  // namespace

Prefill::Prefill(const Model& model, Threads& threads)
    : model_(model),
      threads_(threads),
      attention_(model.shape(), threads),
      width_stride_(apart(model.shape().width)),
      heads_stride_(apart(model.shape().heads * model.shape().head_dim)),
      ffn_stride_(apart(model.shape().ffn)),
      scratch_(threads.count()) {}

namespace {

// The rows of a KvCache. A block is coded only after the layer's attention: until then the rows
// before stay as they were.
class CacheRows : public PrefillRows {
 public:
  CacheRows(KvCache& cache, uint32_t end, Threads& threads)
      : cache_(cache), own_{cache.tokens(), end}, threads_(threads) {}

  Result<const AttentionRows*> take(uint32_t layer, uint32_t rows, float* k, float* v) override {
    KV_RETURN_IF_ERROR(cache_.append(layer, 0, rows, k, v));
    for (Side side : {Side::k, Side::v}) {
      if (cache_.codec().side(layer, 0, side)->coded()) continue;
      KV_RETURN_IF_ERROR(cache_.decode(layer, 0, side, own_, side == Side::k ? k : v));
    }
    return own_.first == 0 ? nullptr : &cache_.rows(layer, 0);
  }
  Status finish(uint32_t layer) override {
    return cache_.seal(layer, [this](uint32_t count, const auto& task) {
      threads_.run(count, [&](uint32_t i, uint32_t) { task(i); });
    });
  }

 private:
  KvCache& cache_;
  const RowRange own_;
  Threads& threads_;
};

}  // namespace

Status Prefill::extend(std::span<const Token> tokens, KvCache& cache, Deadline deadline) {
  const uint32_t first = cache.tokens();
  CacheRows rows(cache, static_cast<uint32_t>(tokens.size()), threads_);
  KV_RETURN_IF_ERROR(run(tokens, first, rows, deadline));
  cache.advance(tokens.subspan(first));
  return {};
}

template <typename Body>
void Prefill::each_piece(const Body& body) {
  for (uint32_t first = 0; first < count_; first += kPieceRows) {
    body(RowRange{first, std::min(first + kPieceRows, count_)});
  }
}

template <typename Body>
void Prefill::each_row(RowRange rows, const Body& body) {
  const uint32_t count = rows.end - rows.first;
  threads_.run((count + kRowsOfTask - 1) / kRowsOfTask, [&](uint32_t task, uint32_t worker) {
    const uint32_t first = rows.first + task * kRowsOfTask;
    const uint32_t end = std::min(first + kRowsOfTask, rows.end);
    for (uint32_t row = first; row < end; ++row) body(row, worker);
  });
}

// Buffers, and the embeddings and rotations of the rows.
void Prefill::start(std::span<const Token> tokens) {
  const ModelShape& s = model_.shape();
  const size_t rows = count_, piece = std::min(count_, kPieceRows);
  x_.resize(rows * s.width);
  for (auto* side : {&k_, &v_}) side->resize(rows * s.kv_heads * s.head_dim);
  sum_.resize(piece * s.width);
  norm_.resize(piece * width_stride_);
  heads_.resize(piece * heads_stride_);
  q_.resize(piece * s.heads * s.head_dim);
  for (auto* half : {&gate_, &up_}) half->resize(piece * ffn_stride_);
  for (auto& rope : rope_) rope.resize(rows * s.head_dim);
  attention_.reserve(first_, first_ + count_);
  each_row({0, count_}, [&](uint32_t row, uint32_t) {
    embed(model_, tokens[first_ + row], x_.data() + size_t{row} * s.width);
    for (int kind = 0; kind < 2; ++kind) {
      model_.rope(kind != 0, first_ + row, rope_[kind].data() + size_t{row} * s.head_dim);
    }
  });
}

// All products of one input. A task is a strip of weights where rows are few, else one band of
// weights times some rows.
void Prefill::products(std::initializer_list<Product> list, const float* in, size_t stride,
                       uint32_t rows) {
  if (rows <= engine_kernels().few_rows) {
    return each_strip(
        threads_, list, [&](const Product& p, uint32_t first, uint32_t end, uint32_t) {
          multiply_in_chains(*p.weights, {in, stride, rows}, first, end, p.out + first, p.stride);
        });
  }
  auto bands_of = [](const Product& p) { return (p.weights->rows - 1) / kBandColumns + 1; };
  uint32_t bands = 0;
  for (const Product& p : list) bands += bands_of(p);
  const uint32_t stretches = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  threads_.run(bands * stretches, [&](uint32_t task, uint32_t worker) {
    const uint32_t first = task / bands * kRowsAtOnce;
    uint32_t band = task % bands;
    const Product* p = list.begin();
    for (; band >= bands_of(*p); ++p) band -= bands_of(*p);
    multiply_band(*p, band * kBandColumns, in + first * stride, stride,
                  {first, std::min(first + kRowsAtOnce, rows)}, scratch_[worker]);
  });
}

// Outputs from `column` on of rows [first, end), of which `in` is the first one's.
void Prefill::multiply_band(const Product& p, uint32_t column, const float* in, size_t stride,
                            RowRange rows, Scratch& s) {
  const uint32_t columns = p.weights->columns;
  s.band.resize(size_t{kLinesAtOnce} * kBandColumns);
  BandProduct product{in, stride, s.band.data()};
  product.out = p.out + rows.first * p.stride + column;
  product.out_stride = p.stride;
  product.rows = rows.end - rows.first;
  product.columns = std::min(kBandColumns, p.weights->rows - column);
  for (uint32_t line = 0; line < columns; line += kLinesAtOnce) {
    product.depth = std::min(kLinesAtOnce, columns - line);
    product.go_on = line > 0;
    product.a = in + line;
    widen_band(*p.weights, column, {line, line + product.depth}, s.band.data());
    engine_kernels().band_product(product);
  }
}

// norm_: the piece's rows, normed.
void Prefill::normalise(std::span<const float> weight, RowRange piece) {
  each_row(piece, [&](uint32_t row, uint32_t) {
    rms_norm(x_.data() + row * weight.size(), weight, model_.shape().rms_eps,
             norm_.data() + (row - piece.first) * width_stride_);
  });
}

// A piece's queries, its keys and values, or all of them.
void Prefill::queries_keys_values(uint32_t layer, RowRange piece, bool queries, bool keys_values) {
  const ModelShape& s = model_.shape();
  const LayerWeights& w = model_.layers()[layer];
  const size_t kv_width = size_t{s.kv_heads} * s.head_dim, q_width = size_t{s.heads} * s.head_dim;
  const uint32_t rows = piece.end - piece.first;
  normalise(w.attn_norm, piece);
  const Product q{&w.q, q_.data(), q_width}, k{&w.k, k_.data() + piece.first * kv_width, kv_width},
      v{&w.v, v_.data() + piece.first * kv_width, kv_width};
  if (!keys_values) {
    products({q}, norm_.data(), width_stride_, rows);
  } else if (!queries) {
    products({k, v}, norm_.data(), width_stride_, rows);
  } else {
    products({q, k, v}, norm_.data(), width_stride_, rows);
  }
  const std::span<const float> rope(rope_[s.windowed(layer) ? 1 : 0]);
  each_row(piece, [&](uint32_t row, uint32_t) {
    const auto at = rope.subspan(size_t{row} * s.head_dim, s.head_dim);
    if (keys_values) finish_heads(s, w.k_norm, at, s.kv_heads, k_.data() + row * kv_width);
    if (!queries) return;
    finish_heads(s, w.q_norm, at, s.heads, q_.data() + (row - piece.first) * q_width);
  });
}

// x += attention of the piece's rows.
void Prefill::attention(uint32_t layer, RowRange piece) {
  const LayerWeights& w = model_.layers()[layer];
  attention_.run(q_.data(), {first_ + piece.first, first_ + piece.end}, heads_.data(),
                 heads_stride_);
  products({{&w.o, sum_.data(), model_.shape().width}}, heads_.data(), heads_stride_,
           piece.end - piece.first);
  add_branches(w.post_attention_norm, piece);
}

void Prefill::add_branches(std::span<const float> norm, RowRange piece) {
  const ModelShape& s = model_.shape();
  each_row(piece, [&](uint32_t row, uint32_t) {
    add_branch(s, norm, sum_.data() + size_t{row - piece.first} * s.width,
               x_.data() + size_t{row} * s.width);
  });
}

void Prefill::feed_forward(const LayerWeights& layer, RowRange piece) {
  const ModelShape& s = model_.shape();
  const uint32_t rows = piece.end - piece.first;
  normalise(layer.ffn_norm, piece);
  products({{&layer.gate, gate_.data(), ffn_stride_}, {&layer.up, up_.data(), ffn_stride_}},
           norm_.data(), width_stride_, rows);
  each_row({0, rows}, [&](uint32_t row, uint32_t worker) {
    auto& work = scratch_[worker].work;
    work.resize(std::max<size_t>(work.size(), s.ffn));
    gate_times(s, gate_.data() + row * ffn_stride_, up_.data() + row * ffn_stride_, work.data(),
               engine_codec_kernels());
  });
  products({{&layer.down, sum_.data(), s.width}}, gate_.data(), ffn_stride_, rows);
  add_branches(layer.post_ffn_norm, piece);
}

Status Prefill::check(std::span<const Token> tokens, uint32_t first) const {
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
  return {};
}

Status Prefill::run(std::span<const Token> tokens, uint32_t first, PrefillRows& rows,
                    Deadline deadline, bool keep_hidden) {
  KV_RETURN_IF_ERROR(check(tokens, first));
  const uint32_t layers = model_.shape().layers;
  first_ = first;
  count_ = static_cast<uint32_t>(tokens.size()) - first;
  start(tokens);
  for (uint32_t l = 0; l < layers; ++l) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return {StatusCode::deadline_exceeded, "prefill: at layer " + std::to_string(l)};
    }
    // Outputs of the last layer are needed by nobody.
    KV_RETURN_IF_ERROR(layer(l, rows, l + 1 < layers || keep_hidden));
  }
  return {};
}

// All rows' keys and values, then piece by piece all that follows, if it is computed `whole`.
Status Prefill::layer(uint32_t layer, PrefillRows& rows, bool whole) {
  const ModelShape& s = model_.shape();
  const bool at_once = whole && count_ <= kPieceRows;
  each_piece([&](RowRange piece) { queries_keys_values(layer, piece, at_once, true); });
  KV_ASSIGN_OR_RETURN(const AttentionRows* before, rows.take(layer, count_, k_.data(), v_.data()));
  if (!whole) return rows.finish(layer);
  attention_.begin(k_.data(), v_.data(), before, s.windowed(layer) ? s.window : 0);
  each_piece([&](RowRange piece) {
    if (!at_once) queries_keys_values(layer, piece, true, false);
    if (watch_) watch_(layer, {first_ + piece.first, first_ + piece.end}, q_.data());
    attention(layer, piece);
    feed_forward(model_.layers()[layer], piece);
    if (pause_) pause_();
  });
  return rows.finish(layer);
}

const float* Prefill::hidden(uint32_t position) const {
  KV_CHECK(position >= first_ && position < first_ + count_);
  return x_.data() + size_t{position - first_} * model_.shape().width;
}

}  // namespace kv
