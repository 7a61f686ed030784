// Encoding and decoding of rows. See transform.h.
#include "codec/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kv {
namespace {

constexpr uint32_t kPassRows = 64;        // rows that are turned into values at a time
constexpr float kRounder = 0x1.8p23f;     // x + kRounder - kRounder: x rounded to nearest even
constexpr float kMostInteger = 32767.0f;  // what doesn't fit is kept exact
constexpr double kLeastPivot = 1e-9;

// The inverse of q (n, n), in double in a fixed order; empty if there is none.
std::vector<double> inverse_of(const int8_t* q, size_t n) {
  std::vector<double> a(n * 2 * n);  // q, then what becomes its inverse
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) a[i * 2 * n + j] = q[i * n + j];
    a[i * 2 * n + n + i] = 1;
  }
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i) {
      if (std::fabs(a[i * 2 * n + k]) > std::fabs(a[pivot * 2 * n + k])) pivot = i;
    }
    double* row = &a[k * 2 * n];
    if (pivot != k) std::swap_ranges(row, row + 2 * n, &a[pivot * 2 * n]);
    if (std::fabs(row[k]) < kLeastPivot) return {};
    const double by = 1 / row[k];
    for (size_t j = k; j < 2 * n; ++j) row[j] *= by;
    for (size_t i = 0; i < n; ++i) {
      double* __restrict other = &a[i * 2 * n];
      const double* __restrict from = row;
      const double factor = other[k];
      if (i == k || factor == 0) continue;
      for (size_t j = k; j < 2 * n; ++j) other[j] -= factor * from[j];
    }
  }
  std::vector<double> inverse(n * n);
  for (size_t i = 0; i < n; ++i) std::copy_n(&a[i * 2 * n + n], n, &inverse[i * n]);
  return inverse;
}

// Tiles (tiles, n, kProductRows) of rows (rows, row_stride), of which those that are missing are 0.
void tiles_of(const float* rows, size_t count, size_t row_stride, size_t n, float* tiles) {
  for (size_t first = 0; first < count; first += kProductRows, tiles += n * kProductRows) {
    for (size_t r = 0; r < kProductRows; ++r) {
      const float* row = rows + (first + r) * row_stride;
      for (size_t k = 0; k < n; ++k) {
        tiles[k * kProductRows + r] = first + r < count ? row[k] : 0.0f;
      }
    }
  }
}

}  // namespace

TransformTables::TransformTables(std::shared_ptr<const TransformSet> set)
    : set_(std::move(set)), integers_(set_->tables) {
  for (const Rotation& r : set_->rotations) turns_.emplace_back(r);
}

Result<std::shared_ptr<const TransformTables>> TransformTables::create(
    std::shared_ptr<const TransformSet> set) {
  KV_RETURN_IF_ERROR(validate(*set));
  return std::shared_ptr<const TransformTables>(new TransformTables(std::move(set)));
}

Result<std::shared_ptr<const TransformCoder>> TransformCoder::create(
    std::shared_ptr<const TransformTables> tables, size_t transform, uint32_t heads, uint32_t dim,
    const Kernels* kernels) {
  KV_RETURN_IF_ERROR(validate_shape(tables->set(), transform, heads, dim));
  if (kernels == nullptr) {
    KV_ASSIGN_OR_RETURN(kernels, select_kernels());
  }
  return std::shared_ptr<const TransformCoder>(
      new TransformCoder(std::move(tables), transform, heads, dim, *kernels));
}

TransformCoder::TransformCoder(std::shared_ptr<const TransformTables> tables, size_t transform,
                               uint32_t heads, uint32_t dim, const Kernels& kernels)
    : tables_(std::move(tables)),
      transform_(tables_->set().transforms[transform]),
      heads_(heads),
      dim_(dim),
      kernels_(transform_kernels(kernels)),
      stride_(padded(transform_.width)) {
  const size_t n = transform_.width;
  matrix_.resize(values() * stride_);
  mean_.resize(groups() * stride_);
  for (size_t c = 0; c < values(); ++c) {
    mean_[c / n * stride_ + c % n] = transform_.mean[c];
    for (size_t j = 0; j < n; ++j) {
      matrix_[c * stride_ + j] = transform_.scale[c] * transform_.basis[c * n + j];
    }
  }
}

const std::vector<float>& TransformCoder::inverses() const {
  std::call_once(inverted_, [this] {
    const size_t n = transform_.width;
    std::vector<float> inverse(values() * stride_);
    for (size_t g = 0; g < groups(); ++g) {
      const auto q = inverse_of(&transform_.basis[g * n * n], n);
      if (q.empty()) return;
      for (size_t j = 0; j < n; ++j) {
        for (size_t c = 0; c < n; ++c) {
          inverse[(g * n + j) * stride_ + c] =
              static_cast<float>(q[j * n + c] / transform_.scale[g * n + c]);
        }
      }
    }
    inverse_ = std::move(inverse);
  });
  return inverse_;
}

std::optional<std::vector<int16_t>> TransformCoder::integers(std::span<const float> rows,
                                                             uint32_t first) const {
  const size_t n = transform_.width, width = values(), count = rows.size() / width;
  const std::vector<float>& inverse = inverses();
  if (inverse.empty() || count == 0 || count > kMaxStreamRows) return std::nullopt;
  const size_t lanes = lane_rows(count);
  std::vector<int16_t> out(width * lanes);
  std::vector<float> pass(kPassRows * width), tiles(kPassRows * n), found(kPassRows * stride_),
      zeros(stride_);
  bool fits = true;
  for (size_t at = 0; at < count && fits; at += kPassRows) {
    const size_t some = std::min<size_t>(kPassRows, count - at);
    std::copy_n(rows.data() + at * width, some * width, pass.data());
    if (transform_.rotation != kNoRotation) {
      tables_->turns(transform_.rotation)
          .turn(pass.data(), some, width, static_cast<uint32_t>(first + at), heads_, dim_, true);
    }
    for (size_t r = 0; r < some; ++r) {
      for (size_t j = 0; j < width; ++j) pass[r * width + j] -= transform_.mean[j];
    }
    for (size_t g = 0; g < groups(); ++g) {
      tiles_of(&pass[g * n], some, width, n, tiles.data());
      kernels_.product(tiles.data(), (some + kProductRows - 1) / kProductRows, n,
                       &inverse[g * n * stride_], stride_, zeros.data(), found.data(), stride_);
      for (size_t c = 0; c < n; ++c) {
        int16_t* to = &out[(g * n + c) * lanes + at];
        for (size_t r = 0; r < some; ++r) {
          const float y = found[r * stride_ + c];
          const bool good = std::fabs(y) <= kMostInteger;
          fits &= good;
          to[r] = static_cast<int16_t>(static_cast<int32_t>(good ? y + kRounder - kRounder : 0));
        }
      }
    }
  }
  if (!fits) return std::nullopt;
  return out;
}

std::optional<std::vector<uint8_t>> TransformCoder::encode(std::span<const float> rows,
                                                           uint32_t first) const {
  const auto found = integers(rows, first);
  if (!found) return std::nullopt;
  return encode_integers(tables_->integers(), {transform_.table, transform_.low_bits}, *found,
                         static_cast<uint32_t>(rows.size() / values()));
}

// Rows [begin, begin + rows) of the integers, at most kPassRows, into (rows, values).
void TransformCoder::rows_of(const int16_t* integers, size_t lanes, uint32_t begin, uint32_t rows,
                             float* out) const {
  const size_t n = transform_.width;
  std::vector<float> tiles(kPassRows * n), found(kPassRows * stride_);
  const size_t tile_count = (rows + kProductRows - 1) / kProductRows;
  for (size_t g = 0; g < groups(); ++g) {
    for (size_t c = 0; c < n; ++c) {
      const int16_t* from = integers + (g * n + c) * lanes + begin;
      for (size_t r = 0; r < tile_count * kProductRows; ++r) {
        tiles[(r / kProductRows * n + c) * kProductRows + r % kProductRows] =
            r < rows ? from[r] : 0.0f;
      }
    }
    kernels_.product(tiles.data(), tile_count, n, &matrix_[g * n * stride_], stride_,
                     &mean_[g * stride_], found.data(), stride_);
    for (uint32_t r = 0; r < rows; ++r) {
      const float* row = &found[r * stride_];
      float* to = out + r * values() + g * n;
      for (size_t j = 0; j < n; ++j) to[j] = row[j] + 0.0f;  // no zero with a sign
    }
  }
}

// (values, lane_rows(count)).
Result<std::vector<int16_t>> TransformCoder::integers_of(std::span<const uint8_t> stream,
                                                         uint32_t count) const {
  if (count == 0 || count > kMaxStreamRows) {
    return corruption("transform stream: not of 1 to 4096 rows");
  }
  std::vector<int16_t> integers(values() * lane_rows(count));
  KV_RETURN_IF_ERROR(decode_integers(kernels_, tables_->integers(),
                                     {transform_.table, transform_.low_bits}, stream, count,
                                     integers));
  return integers;
}

Status TransformCoder::check(std::span<const uint8_t> stream, uint32_t count) const {
  return integers_of(stream, count).status();
}

Status TransformCoder::decode(std::span<const uint8_t> stream, uint32_t count, uint32_t first,
                              uint32_t begin, uint32_t end, std::span<float> out) const {
  if (begin > end || end > count || out.size() != size_t{end - begin} * values()) {
    return invalid_argument("transform stream of " + std::to_string(count) + " rows: rows [" +
                            std::to_string(begin) + ", " + std::to_string(end) + ") into " +
                            std::to_string(out.size()) + " values");
  }
  KV_ASSIGN_OR_RETURN(const auto integers, integers_of(stream, count));
  for (uint32_t at = begin; at < end; at += kPassRows) {
    const uint32_t some = std::min(kPassRows, end - at);
    float* rows = out.data() + size_t{at - begin} * values();
    rows_of(integers.data(), lane_rows(count), at, some, rows);
    if (transform_.rotation != kNoRotation) {
      tables_->turns(transform_.rotation)
          .turn(rows, some, values(), first + at, heads_, dim_, false);
    }
  }
  return {};
}

}  // namespace kv
