// Encoding and decoding of rows. See transform.h.
#include "codec/transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kv {
namespace {

constexpr size_t kPassRows = 256;  // rows that a product takes at a time
constexpr size_t kPassTiles = kPassRows / kProductRows;
constexpr size_t kStepTiles = 4;   // of a product at a time, and a component's values beside it
constexpr size_t kFirstTerms = 8;  // of the first product, before which all else waits
constexpr size_t kBeyond = 4 * kProductRows;  // values that kernels read behind the last
constexpr float kRounder = 0x1.8p23f;         // x + kRounder - kRounder: x rounded to nearest even
constexpr float kMostInteger = 32767.0f;      // what doesn't fit is kept exact
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

// Element (row, column) of a matrix (rows, stride) in panels of kPanelColumns columns.
size_t panel_at(size_t row, size_t column, size_t rows, size_t stride) {
  const size_t panel = column / kPanelColumns * kPanelColumns;
  const size_t columns = std::min<size_t>(kPanelColumns, stride - panel);
  return rows * panel + row * columns + (column - panel);
}

// Tiles of the first `terms` values of rows (count, stride); rows that are missing are 0.
void tiles_of(const float* rows, size_t count, size_t stride, size_t terms, ProductTile* tiles) {
  static constexpr float kZeros[kProductTerms] = {};
  for (size_t at = 0; at < count; at += kProductRows, ++tiles) {
    const float* of[kProductRows];
    for (size_t r = 0; r < kProductRows; ++r) {
      of[r] = at + r < count ? rows + (at + r) * stride : kZeros;
    }
    tiles->count = static_cast<uint32_t>(terms);
    for (size_t k = 0; k < terms; ++k) tiles->which[k] = static_cast<uint16_t>(k);
    static_assert(kProductRows == 4);
    for (size_t k = 0; k < terms; ++k) {
      const float a = of[0][k], b = of[1][k], c = of[2][k], d = of[3][k];
      tiles->values[k][0] = a;
      tiles->values[k][1] = b;
      tiles->values[k][2] = c;
      tiles->values[k][3] = d;
    }
  }
}

// found (count, stride) rounded into out (n, lanes). False: one does not fit.
bool round_into(const float* found, size_t count, size_t stride, size_t n, size_t lanes,
                int16_t* out) {
  constexpr size_t kSide = 16;  // of squares: both sides' lines stay in the cache
  bool fits = true;
  for (size_t first = 0; first < count; first += kSide) {
    for (size_t c = 0; c < n; c += kSide) {
      int16_t square[kSide][kSide];
      const size_t rows = std::min(kSide, count - first), columns = std::min(kSide, n - c);
      for (size_t r = 0; r < rows; ++r) {
        const float* from = found + (first + r) * stride + c;
        for (size_t i = 0; i < kSide; ++i) {
          const bool good = std::fabs(from[i]) <= kMostInteger;
          fits &= good;
          square[r][i] =
              static_cast<int16_t>(static_cast<int32_t>(good ? from[i] + kRounder - kRounder : 0));
        }
      }
      for (size_t i = 0; i < columns; ++i) {
        for (size_t r = 0; r < rows; ++r) out[(c + i) * lanes + first + r] = square[r][i];
      }
    }
  }
  return fits;
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
    // A sum that does not begin as -0 never is one: no zero of a row has a sign.
    mean_[c / n * stride_ + c % n] = transform_.mean[c] + 0.0f;
    for (size_t j = 0; j < n; ++j) {
      matrix_[c / n * n * stride_ + panel_at(c % n, j, n, stride_)] =
          transform_.scale[c] * transform_.basis[c * n + j];
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
          inverse[g * n * stride_ + panel_at(j, c, n, stride_)] =
              static_cast<float>(q[j * n + c] / transform_.scale[g * n + c]);
        }
      }
    }
    inverse_ = std::move(inverse);
  });
  return inverse_;
}

// Puts at most kPassRows rows, without their rotation and their mean, into (values, lanes).
bool TransformCoder::integers_of(const float* rows, size_t count, size_t lanes,
                                 int16_t* out) const {
  const size_t n = transform_.width, tile_count = (count + kProductRows - 1) / kProductRows;
  std::vector<ProductTile> tiles(tile_count);
  std::vector<float> found(tile_count * kProductRows * stride_);
  bool fits = true;
  for (size_t g = 0; g < groups(); ++g) {
    std::ranges::fill(found, 0.0f);
    for (size_t k = 0; k < n; k += kProductTerms) {
      const size_t terms = std::min<size_t>(kProductTerms, n - k);
      tiles_of(rows + g * n + k, count, values(), terms, tiles.data());
      for (size_t j = 0; j < stride_; j += kPanelColumns) {
        IntegerRun none;
        kernels_.add_product(tiles.data(), tile_count,
                             &inverse_[g * n * stride_ + panel_at(k, j, n, stride_)],
                             std::min<size_t>(kPanelColumns, stride_ - j), &found[j], stride_,
                             &found[j], stride_, none);
      }
    }
    fits &= round_into(found.data(), count, stride_, n, lanes, out + g * n * lanes);
  }
  return fits;
}

std::optional<std::vector<int16_t>> TransformCoder::integers(std::span<const float> rows,
                                                             uint32_t first) const {
  const size_t width = values(), count = rows.size() / width;
  if (inverses().empty() || count == 0 || count > kMaxStreamRows) return std::nullopt;
  const size_t lanes = lane_rows(count);
  std::vector<int16_t> out(width * lanes);
  std::vector<float> pass(std::min(kPassRows, count) * width);
  for (size_t at = 0; at < count; at += kPassRows) {
    const size_t some = std::min(kPassRows, count - at);
    std::copy_n(rows.data() + at * width, some * width, pass.data());
    if (transform_.rotation != kNoRotation) {
      tables_->turns(transform_.rotation)
          .turn(pass.data(), some, width, static_cast<uint32_t>(first + at), heads_, dim_, true);
    }
    for (size_t r = 0; r < some; ++r) {
      for (size_t j = 0; j < width; ++j) pass[r * width + j] -= transform_.mean[j];
    }
    if (!integers_of(pass.data(), some, lanes, &out[at])) return std::nullopt;
  }
  return out;
}

std::optional<std::vector<uint8_t>> TransformCoder::encode(std::span<const float> rows,
                                                           uint32_t first) const {
  const auto found = integers(rows, first);
  if (!found) return std::nullopt;
  return encode_integers(tables_->integers(), coding(), *found,
                         static_cast<uint32_t>(rows.size() / values()));
}

// The sums of a range of rows, to which components are added as they come.
class TransformCoder::Sums {
 public:
  /// integers (values, lanes), of which the range's first row is row 0; out (rows, values).
  Sums(const TransformCoder& coder, const int16_t* integers, size_t lanes, size_t rows, float* out)
      : coder_(coder),
        integers_(integers),
        lanes_(lanes),
        out_(out),
        width_(coder.values()),
        whole_(coder.stride_ == width_ ? rows / kProductRows * kProductRows : 0),
        rows_(rows),
        edge_((rows - whole_ + kProductRows - 1) / kProductRows * kProductRows * coder.stride_),
        tiles_(std::min(kPassTiles, (rows + kBeyond - 1) / kBeyond * 4)) {}

  /// Components [first, end) of group g, while `reader` reads on.
  void add(size_t g, size_t first, size_t end, IntegerReader& reader) {
    const size_t n = coder_.transform_.width;
    for (size_t at = 0; at < rows_; at += kPassRows) {
      const size_t some = std::min(kPassRows, rows_ - at);
      const size_t tiles = (some + kProductRows - 1) / kProductRows;
      coder_.kernels_.make_tiles(integers_ + (g * n + first) * lanes_ + at, lanes_, end - first,
                                 tiles, tiles_.data());
      for (size_t j = 0; j < coder_.stride_; j += kPanelColumns) {
        for (size_t t = 0; t < tiles; t += kStepTiles) {
          const size_t row = at + t * kProductRows;
          add_panel(g, first, j, row, &tiles_[t], std::min(kStepTiles, tiles - t), reader);
        }
      }
    }
  }

  /// When all of group g has been added: what was summed beside the rows, into them.
  void finish(size_t g) {
    const size_t n = coder_.transform_.width, stride = coder_.stride_;
    for (size_t r = whole_; r < rows_; ++r) {
      std::copy_n(&edge_[(r - whole_) * stride], n, out_ + r * width_ + g * n);
    }
  }

 private:
  // Tiles from `row` on, columns [j, j + kPanelColumns): in the rows, or beside them if they do not
  // fit there.
  void add_panel(size_t g, size_t first, size_t j, size_t row, const ProductTile* tiles,
                 size_t count, IntegerReader& reader) {
    const size_t n = coder_.transform_.width, stride = coder_.stride_;
    const float* panel = &coder_.matrix_[g * n * stride + panel_at(first, j, n, stride)];
    const size_t columns = std::min<size_t>(kPanelColumns, stride - j);
    const float* mean = &coder_.mean_[g * stride + j];
    while (count > 0) {
      const bool inside = row < whole_;
      const size_t some = inside ? std::min(count, (whole_ - row) / kProductRows) : count;
      float* to = inside ? out_ + row * stride + j : &edge_[(row - whole_) * stride + j];
      coder_.kernels_.add_product(tiles, some, panel, columns, first == 0 ? mean : to,
                                  first == 0 ? 0 : stride, to, stride, reader.beside());
      tiles += some, count -= some, row += some * kProductRows;
    }
  }

  const TransformCoder& coder_;
  const int16_t* const integers_;
  const size_t lanes_;
  float* const out_;
  const size_t width_, whole_, rows_;  // `whole_` of them are summed in place
  std::vector<float> edge_;            // (rows - whole, stride): of one group at a time
  std::vector<ProductTile> tiles_;
};

Status TransformCoder::check(std::span<const uint8_t> stream, uint32_t count) const {
  return decode(stream, count, 0, 0, 0, {});
}

Status TransformCoder::decode(std::span<const uint8_t> stream, uint32_t count, uint32_t first,
                              uint32_t begin, uint32_t end, std::span<float> out) const {
  if (count == 0 || count > kMaxStreamRows) {
    return corruption("transform stream: not of 1 to 4096 rows");
  }
  if (begin > end || end > count || out.size() != size_t{end - begin} * values()) {
    return invalid_argument("transform stream of " + std::to_string(count) + " rows: rows [" +
                            std::to_string(begin) + ", " + std::to_string(end) + ") into " +
                            std::to_string(out.size()) + " values");
  }
  const size_t lanes = lane_rows(count), n = transform_.width, rows = end - begin;
  std::vector<int16_t> integers(values() * lanes + kBeyond);
  IntegerReader reader(kernels_, tables_->integers(), coding(), count, integers.data());
  KV_RETURN_IF_ERROR(reader.open(stream));
  if (rows > 0) {
    Sums sums(*this, integers.data() + begin, lanes, rows, out.data());
    for (size_t c = 0, last = 0; c < values(); c = last) {
      const size_t in_group = std::min<size_t>(kProductTerms, n - c % n);
      last = c + std::min(in_group, std::max(kFirstTerms, reader.read() - c));
      KV_RETURN_IF_ERROR(reader.read_to(last));
      sums.add(c / n, c % n, c % n + last - c, reader);
      if (last % n == 0) sums.finish(c / n);
    }
  }
  KV_RETURN_IF_ERROR(reader.close());
  if (rows > 0 && transform_.rotation != kNoRotation) {
    tables_->turns(transform_.rotation)
        .turn(out.data(), rows, values(), first + begin, heads_, dim_, false);
  }
  return {};
}

}  // namespace kv
