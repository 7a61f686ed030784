// Attention on stored rows: scores, chunk-wise softmax, weighted sums, merging.
//
// Arithmetic and its order: codec/TURBOQUANT.md, "Attention". Nothing here is shared between
// threads but the rows and queries, which are only read.
#include "codec/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "codec/float16.h"
#include "codec/turboquant.h"
#include "codec/values.h"

namespace kv {
namespace {

/// Weights are rounded to 32767 steps per tile.
static_assert(int64_t{kTileRows} * 32767 * code_max(4) < (int64_t{1} << 31));
static_assert(kAttentionChunk % kTileRows == 0);
constexpr size_t kPrefetchRows = 12;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

uint32_t round_up8(uint32_t n) { return (n + 7) / 8 * 8; }

// Grows only, so that steady calls never allocate.
template <typename T>
T* at_least(std::vector<T>& v, size_t n) {
  if (v.size() < n) v.resize(n);
  return v.data();
}

using Run = AttentionRows::Run;

// The first run that ends after `row`.
const Run* first_run_after(const std::vector<Run>& runs, uint32_t row) {
  auto it = std::partition_point(runs.begin(), runs.end(),
                                 [row](const Run& run) { return run.end <= row; });
  return runs.data() + (it - runs.begin());
}

void cut_runs(std::vector<Run>& runs, uint32_t row) {
  while (!runs.empty() && runs.back().first >= row) runs.pop_back();
  if (!runs.empty()) runs.back().end = std::min(runs.back().end, row);
}

// Appends what [first, end) takes of the plane's runs.
void append_runs(const Plane& plane, uint32_t first, uint32_t end, std::vector<Run>& out) {
  const uint8_t* data = plane.bytes.data();
  uint32_t row = plane.first_row;
  for (const RowRun& run : plane.runs) {
    const uint32_t a = std::max(row, first), b = std::min(row + run.rows, end);
    if (a < b) {
      Run r;
      r.first = a;
      r.end = b;
      r.form = run.form;
      r.dtype = plane.dtype;
      r.run_rows = run.rows;
      if (run.form == RunForm::exact) {
        r.data = data + (a - row) * run_bytes(plane, RunForm::exact, 1);
      } else {
        r.data = data;
        r.data_end = plane.bytes.data() + plane.bytes.size();
        r.scales = data + uint64_t{plane.heads} * run.rows * code_bytes(plane.dim, plane.bits);
        r.run_offset = a - row;
      }
      out.push_back(r);
    }
    row += run.rows;
    data += run_bytes(plane, run);
  }
}

}  // namespace

// ---- AttentionRows

AttentionRows::AttentionRows(std::shared_ptr<const Codec> codec, uint32_t layer, uint32_t part)
    : codec_(std::move(codec)),
      layer_(layer),
      part_(part),
      k_side_(codec_->side(layer, part, Side::k)),
      v_side_(codec_->side(layer, part, Side::v)) {}

Status AttentionRows::add(const Plane& k, const Plane& v, uint32_t first, uint32_t end) {
  KV_RETURN_IF_ERROR(codec_->check_shape(k));
  KV_RETURN_IF_ERROR(codec_->check_shape(v));
  for (const Plane* plane : {&k, &v}) {
    const Side side = plane == &k ? Side::k : Side::v;
    if (plane->layer != layer_ || plane->part != part_ || plane->side != side) {
      return invalid_argument(
          "attention: a plane of layer " + std::to_string(plane->layer) + " part " +
          std::to_string(plane->part) + " " + to_string(plane->side) + " given for layer " +
          std::to_string(layer_) + " part " + std::to_string(part_) + " " + to_string(side));
    }
    if (coding_word(*plane) == kTransformWord) {
      return invalid_argument("attention: a plane of streams is decoded first");
    }
    if (first > end || first < plane->first_row || end > plane->end_row()) {
      return invalid_argument("attention: a plane lacks rows of [" + std::to_string(first) + ", " +
                              std::to_string(end) + ")");
    }
  }
  if (first < end_row()) return invalid_argument("attention: rows must ascend");
  append_runs(k, first, end, k_runs_);
  append_runs(v, first, end, v_runs_);
  return {};
}

Status AttentionRows::add_exact(DType dtype, const void* k, const void* v, uint32_t first_row,
                                uint32_t rows) {
  if (k_side_ == nullptr || v_side_ == nullptr) {
    return unsupported("attention: layer " + std::to_string(layer_) + " part " +
                       std::to_string(part_) + " has no separate K and V");
  }
  if (first_row < end_row()) return invalid_argument("attention: rows must ascend");
  if (uint64_t{first_row} + rows > kMaxTokens) {
    return invalid_argument("attention: rows beyond " + std::to_string(kMaxTokens));
  }
  if (rows == 0) return {};
  Run run;
  run.first = first_row;
  run.end = first_row + rows;
  run.dtype = dtype;
  run.run_rows = rows;
  run.data = static_cast<const uint8_t*>(k);
  k_runs_.push_back(run);
  run.data = static_cast<const uint8_t*>(v);
  v_runs_.push_back(run);
  return {};
}

void AttentionRows::drop_from(uint32_t row) {
  cut_runs(k_runs_, row);
  cut_runs(v_runs_, row);
}

void AttentionRows::clear() {
  k_runs_.clear();
  v_runs_.clear();
}

namespace {

// The part of `run` in [first, end), which it overlaps.
Run clip(Run run, uint32_t first, uint32_t end, const SideCoding& side) {
  if (run.first < first) {
    const uint32_t skipped = first - run.first;
    if (run.form == RunForm::exact) {
      run.data += size_t{skipped} * side.heads * side.dim * dtype_bytes(run.dtype);
    } else {
      run.run_offset += skipped;
    }
    run.first = first;
  }
  run.end = std::min(run.end, end);
  return run;
}

bool same_bytes(const Run& a, const Run& b) {
  const bool same = a.first == b.first && a.end == b.end && a.form == b.form && a.data == b.data;
  if (!same || a.form == RunForm::exact) return same && a.dtype == b.dtype;
  return a.scales == b.scales && a.run_rows == b.run_rows && a.run_offset == b.run_offset;
}

bool same_runs(const std::vector<Run>& a, const std::vector<Run>& b, uint32_t first, uint32_t end,
               const SideCoding& side) {
  const Run *x = first_run_after(a, first), *y = first_run_after(b, first);
  const Run *x_end = a.data() + a.size(), *y_end = b.data() + b.size();
  if (x == x_end || x->first >= end) return false;
  for (;; ++x, ++y) {
    const bool more_x = x != x_end && x->first < end, more_y = y != y_end && y->first < end;
    if (!more_x || !more_y) return more_x == more_y;
    if (!same_bytes(clip(*x, first, end, side), clip(*y, first, end, side))) return false;
  }
}

}  // namespace

bool same_chunk(const AttentionRows& a, const AttentionRows& b, uint32_t chunk) {
  if (&a.codec() != &b.codec() || a.layer() != b.layer() || a.part() != b.part()) return false;
  const uint32_t first = chunk * kAttentionChunk, end = first + kAttentionChunk;
  return same_runs(a.k_runs(), b.k_runs(), first, end, a.k_side()) &&
         same_runs(a.v_runs(), b.v_runs(), first, end, a.v_side());
}

uint32_t AttentionRows::end_row() const { return k_runs_.empty() ? 0 : k_runs_.back().end; }
uint32_t AttentionRows::codes_end() const {
  uint32_t end = 0;
  for (const auto* runs : {&k_runs_, &v_runs_}) {
    auto last = std::find_if(runs->rbegin(), runs->rend(),
                             [](const Run& run) { return run.form == RunForm::codes; });
    if (last != runs->rend()) end = std::max(end, last->end);
  }
  return end;
}
uint32_t AttentionRows::first_chunk() const {
  return k_runs_.empty() ? 0 : k_runs_.front().first / kAttentionChunk;
}
uint32_t AttentionRows::end_chunk() const {
  return (end_row() + kAttentionChunk - 1) / kAttentionChunk;
}

// ---- one chunk

PartialView::PartialView(float* p, uint32_t queries, uint32_t v_dim)
    : stride(round_up8(v_dim)),
      any_rotated(p),
      any_exact(p + 1),
      top(p + kHead),
      sum(top + queries),
      rotated(sum + queries),
      exact(rotated + queries * stride) {}

size_t PartialView::floats(uint32_t queries, uint32_t v_dim) {
  return kHead + size_t{queries} * (2 + 2 * size_t{round_up8(v_dim)});
}

size_t partial_floats(uint32_t queries, const AttentionRows& rows) {
  return PartialView::floats(queries, rows.v_side().dim);
}

class ChunkTask {
 public:
  ChunkTask(const PreparedQueries& queries, QueryRange range, const AttentionRows& rows,
            AttentionScratch& scratch)
      : queries_(queries),
        rows_(rows),
        k_(rows.k_side()),
        v_(rows.v_side()),
        kernels_(rows.codec().kernels()),
        at_(range.first),
        count_(range.count),
        head_(queries.kv_head_),
        v_stride_(round_up8(v_.dim)) {
    KV_CHECK(queries.codec_ == &rows.codec() && queries.layer_ == rows.layer() &&
             queries.part_ == rows.part());
    KV_CHECK(range.first <= queries.count_ && range.count <= queries.count_ - range.first);
    const size_t tile_width = std::max(queries.k_stride_, v_stride_);
    scores_ = at_least(scratch.floats,
                       size_t{count_} * (kAttentionChunk + 1) + kTileRows * (tile_width + 1));
    factors_ = scores_ + size_t{count_} * kAttentionChunk;
    tile_ = factors_ + count_;
    tile_scales_ = tile_ + kTileRows * tile_width;
    weights_ = at_least(scratch.shorts, kTileRows * count_);
    const size_t vector_bytes = std::max(code_bytes(k_.dim, k_.bits), code_bytes(v_.dim, v_.bits));
    codes_ = at_least(scratch.bytes, kScoreRows * vector_bytes + kCodeSlack);
  }

  void run(uint32_t chunk, float* partial) {
    first_ = chunk * kAttentionChunk;
    PartialView out(partial, count_, v_.dim);
    const Run* end = rows_.k_runs().data() + rows_.k_runs().size();
    uint32_t scored = first_;
    for (const Run* r = first_run_after(rows_.k_runs(), first_); r != end && r->first < last();
         ++r) {
      hide_rows(scored, r->first);
      r->form == RunForm::codes ? score_codes(*r) : score_exact(*r);
      scored = r->end;
    }
    hide_rows(scored, last());
    apply_limits();
    bool any = false;
    for (uint32_t i = 0; i < count_; ++i) {
      float* scores = scores_ + size_t{i} * kAttentionChunk;
      out.top[i] = kernels_.largest(scores, kAttentionChunk);
      const bool seen = out.top[i] != kMinusInfinity;
      any |= seen;
      if (seen) {
        out.sum[i] = kernels_.exp_weights(scores, kAttentionChunk, out.top[i]);
      } else {
        out.sum[i] = 0;
        std::fill_n(scores, kAttentionChunk, 0.0f);
      }
    }
    std::memset(out.rotated, 0, 2 * size_t{count_} * v_stride_ * sizeof(float));
    *out.any_rotated = *out.any_exact = 0;
    if (any) sum_values(out);
  }

 private:
  uint32_t last() const { return first_ + kAttentionChunk; }

  // No query sees rows [from, end), which no run has.
  void hide_rows(uint32_t from, uint32_t end) {
    if (from >= end) return;
    for (uint32_t i = 0; i < count_; ++i) {
      std::fill_n(scores_ + size_t{i} * kAttentionChunk + (from - first_), end - from,
                  kMinusInfinity);
    }
  }

  // Index of absolute `row` among the vectors of a code run.
  size_t vector_at(const Run& run, uint32_t row) const {
    return size_t{head_} * run.run_rows + run.run_offset + (row - run.first);
  }

  // `n` code vectors from index `at` of a run, with the kernels' slack behind them: in place
  // wherever the plane goes on for long enough; the last vectors of the last kv head are copied.
  const uint8_t* code_vectors(const Run& run, size_t at, uint32_t n, size_t vector_bytes) {
    const uint8_t* codes = run.data + at * vector_bytes;
    const size_t size = n * vector_bytes;
    if (static_cast<size_t>(run.data_end - codes) >= size + kCodeSlack) return codes;
    std::memcpy(codes_, codes, size);
    return codes_;
  }

  // Asks for `n` rows of the other side, to be read half a chunk later: blocks lie anywhere in
  // memory, so the machine does not see the next one coming.
  void prefetch_codes(const std::vector<Run>& runs, const SideCoding& side, uint32_t row,
                      uint32_t n) const {
    const Run* run = first_run_after(runs, row);
    if (run == runs.data() + runs.size() || run->first > row || run->form == RunForm::exact) return;
    const size_t bytes = code_bytes(side.dim, side.bits), at = vector_at(*run, row);
    const uint8_t *codes = run->data + at * bytes, *scales = run->scales + 2 * at;
    const size_t rows = std::min(n, run->end - row), size = rows * bytes;
    for (size_t i = 0; i < 2 * rows; i += 64) __builtin_prefetch(scales + i);
    for (size_t i = 0; i < size; i += 64) __builtin_prefetch(codes + i);
  }

  void score_codes(const Run& run) {
    const size_t bytes = code_bytes(k_.dim, k_.bits), width = query_width(k_.dim);
    const uint32_t from = std::max(run.first, first_), to = std::min(run.end, last());
    for (uint32_t row = from; row < to;) {
      const uint32_t n = std::min(kScoreRows, to - row);
      const size_t at = vector_at(run, row);
      const uint8_t* codes = code_vectors(run, at, n, bytes);
      prefetch_codes(rows_.v_runs(), v_, row, n);
      for (uint32_t i = 0; i < count_; i += kScoreGroup) {
        int32_t dots[kScoreGroup * kScoreRows];
        const uint32_t group = std::min(kScoreGroup, count_ - i);
        kernels_.dot_codes(queries_.rotated_.data() + (at_ + i) * width, group, codes, n, k_.dim,
                           k_.bits, dots);
        for (uint32_t g = 0; g < group; ++g) {
          kernels_.score_codes(dots + g * kScoreRows, run.scales + 2 * at, n,
                               queries_.factor_[at_ + i + g], queries_.mean_score_[at_ + i + g],
                               scores_ + size_t{i + g} * kAttentionChunk + (row - first_));
        }
      }
      row += n;
    }
  }

  // `n` exact rows from absolute `row` as f32, (n, stride) with zeros beyond dim.
  void load_exact(const Run& run, const SideCoding& side, uint32_t stride, uint32_t row,
                  uint32_t n) {
    const size_t row_bytes = size_t{side.heads} * side.dim * dtype_bytes(run.dtype);
    const size_t head_bytes = size_t{side.dim} * dtype_bytes(run.dtype);
    const uint8_t* data = run.data + (row - run.first) * row_bytes + head_ * head_bytes;
    float* out = tile_;
    for (uint32_t r = 0; r < n; ++r, data += row_bytes, out += stride) {
      // Other heads' rows lie in between: too far apart for the machine to guess.
      for (size_t i = 0; i < head_bytes; i += 64) {
        __builtin_prefetch(data + kPrefetchRows * row_bytes + i);
      }
      read_values(kernels_, data, run.dtype, out, side.dim);
      std::fill(out + side.dim, out + stride, 0.0f);
    }
  }

  void score_exact(const Run& run) {
    const uint32_t from = std::max(run.first, first_), to = std::min(run.end, last());
    const uint32_t stride = queries_.k_stride_;
    for (uint32_t row = from; row < to;) {
      const uint32_t n = std::min(kTileRows, to - row);
      load_exact(run, k_, stride, row, n);
      for (uint32_t i = 0; i < count_; ++i) {
        kernels_.dot_exact(queries_.exact_.data() + size_t{at_ + i} * stride, tile_, n, stride,
                           scores_ + size_t{i} * kAttentionChunk + (row - first_));
      }
      row += n;
    }
  }

  void apply_limits() {
    if (queries_.limits_.empty()) return;
    for (uint32_t i = 0; i < count_; ++i) {
      const RowLimit& limit = queries_.limits_[at_ + i];
      if (limit.end >= last() && limit.first <= first_) continue;
      float* scores = scores_ + size_t{i} * kAttentionChunk;
      for (uint32_t row = first_; row < last(); ++row) {
        const bool seen = row < limit.end && (row >= limit.first || row < limit.keep);
        if (!seen) scores[row - first_] = kMinusInfinity;
      }
    }
  }

  void sum_values(const PartialView& out) {
    const size_t bytes = code_bytes(v_.dim, v_.bits);
    const Run* run = first_run_after(rows_.v_runs(), first_);
    const Run* end = rows_.v_runs().data() + rows_.v_runs().size();
    for (uint32_t tile = first_; tile < last(); tile += kTileRows) {
      while (run != end && run->end <= tile) ++run;
      const uint8_t* codes = nullptr;
      prefetch_codes(rows_.k_runs(), k_, tile + kAttentionChunk, kTileRows);
      for (const Run* r = run; r != end && r->first < tile + kTileRows; ++r) {
        const uint32_t from = std::max(r->first, tile), to = std::min(r->end, tile + kTileRows);
        if (r->form == RunForm::exact) {
          add_exact(*r, from, to, out.exact);
          *out.any_exact = 1;
          continue;
        }
        const size_t at = vector_at(*r, from);
        if (to - from == kTileRows) {
          codes = code_vectors(*r, at, kTileRows, bytes);
        } else {  // gathered from several runs; rows of none have weight 0
          if (codes == nullptr) std::fill_n(tile_scales_, kTileRows, 0.0f);
          codes = codes_;
          std::memcpy(codes_ + (from - tile) * bytes, r->data + at * bytes, (to - from) * bytes);
        }
        kernels_.f16_to_f32(r->scales + 2 * at, tile_scales_ + (from - tile), to - from);
      }
      if (codes == nullptr) continue;
      add_codes(tile, codes, out.rotated);
      *out.any_rotated = 1;
    }
  }

  void add_exact(const Run& run, uint32_t from, uint32_t to, float* sums) {
    load_exact(run, v_, v_stride_, from, to - from);
    for (uint32_t i = 0; i < count_; ++i) {
      kernels_.add_exact(scores_ + size_t{i} * kAttentionChunk + (from - first_), tile_, to - from,
                         v_stride_, sums + size_t{i} * v_stride_);
    }
  }

  void add_codes(uint32_t tile, const uint8_t* codes, float* sums) {
    for (uint32_t i = 0; i < count_; ++i) {
      factors_[i] =
          kernels_.quantize_weights(scores_ + size_t{i} * kAttentionChunk + (tile - first_),
                                    tile_scales_, weights_ + size_t{i} * kTileRows);
    }
    for (uint32_t i = 0; i < count_; i += kSumGroup) {
      kernels_.add_codes(weights_ + size_t{i} * kTileRows, factors_ + i,
                         std::min(kSumGroup, count_ - i), codes, v_.dim, v_.bits,
                         sums + size_t{i} * v_stride_, v_stride_);
    }
  }

  const PreparedQueries& queries_;
  const AttentionRows& rows_;
  const SideCoding& k_;
  const SideCoding& v_;
  const Kernels& kernels_;
  const uint32_t at_, count_;  // the range of queries
  const uint32_t head_, v_stride_;
  uint32_t first_ = 0;  // row of the chunk
  float* scores_;       // (count, kAttentionChunk); weights after the softmax
  float* factors_;      // (count)
  float* tile_;         // (kTileRows, stride) exact rows
  float* tile_scales_;  // (kTileRows), 0 where the row is not coded
  int16_t* weights_;    // (count, kTileRows)
  uint8_t* codes_;      // (kScoreRows) code vectors and kCodeSlack bytes
};

// ---- merging

class ChunkMerger {
 public:
  ChunkMerger(uint32_t queries, const SideCoding& v, const Kernels& kernels,
              AttentionScratch& scratch)
      : count_(queries),
        v_(v),
        kernels_(kernels),
        sums_(at_least(scratch.merged, PartialView::floats(queries, v.dim)), count_, v.dim),
        stride_(sums_.stride) {
    std::fill_n(sums_.any_rotated, PartialView::floats(queries, v.dim), 0.0f);
    std::fill_n(sums_.top, count_, kMinusInfinity);
  }

  void add(const ChunkPartial& partial) {
    PartialView p(const_cast<float*>(partial.floats), partial.queries, v_.dim);  // only read
    constexpr uint32_t kAtOnce = 4;
    for (uint32_t first = 0; first < count_; first += kAtOnce) {
      const uint32_t end = std::min(first + kAtOnce, count_);
      float shrink[2 * kAtOnce] = {};  // of the sums so far, and of the partial's
      for (uint32_t i = first; i < end; ++i) {
        const float top = std::max(sums_.top[i], p.top[partial.first + i]);
        shrink[2 * (i - first)] = sums_.top[i] - top;
        shrink[2 * (i - first) + 1] = p.top[partial.first + i] - top;
      }
      kernels_.exp_weights(shrink, 2 * kAtOnce, 0.0f);
      for (uint32_t i = first; i < end; ++i) {
        add_query(i, p, partial.first + i, shrink + 2 * (i - first));
      }
    }
  }

  void finish(float* out) {
    const float unit = code_unit(v_.bits) / rotation_norm(v_.dim);
    for (uint32_t i = 0; i < count_; ++i, out += v_.dim) {
      float* rotated = sums_.rotated + size_t{i} * stride_;
      const float* exact = sums_.exact + size_t{i} * stride_;
      if (*sums_.any_rotated != 0) kernels_.unrotate(rotated, v_.dim, v_.signs->data());
      for (uint32_t j = 0; j < v_.dim; ++j) {
        out[j] = sums_.sum[i] == 0 ? 0.0f : (rotated[j] * unit + exact[j]) / sums_.sum[i];
      }
    }
  }

 private:
  void add_query(uint32_t i, const PartialView& p, uint32_t from, const float* shrink) {
    if (p.sum[from] == 0) return;
    *sums_.any_rotated = std::max(*sums_.any_rotated, *p.any_rotated);
    *sums_.any_exact = std::max(*sums_.any_exact, *p.any_exact);
    const size_t at = size_t{i} * stride_, read = size_t{from} * stride_;
    sums_.sum[i] = sums_.sum[i] * shrink[0] + p.sum[from] * shrink[1];
    sums_.top[i] = std::max(sums_.top[i], p.top[from]);
    if (*sums_.any_exact != 0) {
      kernels_.merge(sums_.exact + at, shrink[0], p.exact + read, shrink[1], stride_);
    }
    if (*sums_.any_rotated != 0) {
      kernels_.merge(sums_.rotated + at, shrink[0], p.rotated + read, shrink[1], stride_);
    }
  }

  const uint32_t count_;
  const SideCoding& v_;
  const Kernels& kernels_;
  PartialView sums_;
  const size_t stride_;
};

void attend_chunk(const PreparedQueries& queries, QueryRange range, const AttentionRows& rows,
                  uint32_t chunk, AttentionScratch& scratch, std::span<float> partial) {
  KV_CHECK(partial.size() == partial_floats(range.count, rows));
  ChunkTask(queries, range, rows, scratch).run(chunk, partial.data());
}

void merge_chunks(QueryRange range, const AttentionRows& rows,
                  std::span<const ChunkPartial> partials, AttentionScratch& scratch,
                  std::span<float> out) {
  merge_chunks(range, rows.v_side(), rows.codec().kernels(), partials, scratch, out);
}

void merge_chunks(QueryRange range, const SideCoding& v, const Kernels& kernels,
                  std::span<const ChunkPartial> partials, AttentionScratch& scratch,
                  std::span<float> out) {
  KV_CHECK(out.size() == size_t{range.count} * v.dim);
  ChunkMerger merger(range.count, v, kernels, scratch);
  for (const ChunkPartial& partial : partials) {
    KV_CHECK(partial.first <= partial.queries && range.count <= partial.queries - partial.first);
    merger.add(partial);
  }
  merger.finish(out.data());
}

size_t partial_floats(const PreparedQueries& queries, const AttentionRows& rows) {
  return partial_floats(queries.count(), rows);
}

void attend_chunk(const PreparedQueries& queries, const AttentionRows& rows, uint32_t chunk,
                  AttentionScratch& scratch, std::span<float> partial) {
  attend_chunk(queries, {0, queries.count()}, rows, chunk, scratch, partial);
}

void merge_chunks(const PreparedQueries& queries, const AttentionRows& rows,
                  std::span<const float> partials, AttentionScratch& scratch,
                  std::span<float> out) {
  const size_t floats = partial_floats(queries, rows);
  std::vector<ChunkPartial> list;
  for (uint32_t c = rows.first_chunk(); c < rows.end_chunk(); ++c) {
    list.push_back({partials.data() + list.size() * floats, queries.count(), 0});
  }
  KV_CHECK(partials.size() == list.size() * floats);
  merge_chunks({0, queries.count()}, rows, list, scratch, out);
}

void attend(const PreparedQueries& queries, const AttentionRows& rows, AttentionScratch& scratch,
            std::span<float> out) {
  KV_CHECK(out.size() == size_t{queries.count()} * rows.v_side().dim);
  const QueryRange all{0, queries.count()};
  float* partial = at_least(scratch.partial, partial_floats(all.count, rows));
  ChunkTask task(queries, all, rows, scratch);
  ChunkMerger merger(all.count, rows.v_side(), rows.codec().kernels(), scratch);
  for (uint32_t chunk = rows.first_chunk(); chunk < rows.end_chunk(); ++chunk) {
    task.run(chunk, partial);
    merger.add({partial, all.count, 0});
  }
  merger.finish(out.data());
}

}  // namespace kv
