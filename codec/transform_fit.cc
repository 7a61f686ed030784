// Covariances, principal components, tables. See transform_fit.h.
#include "codec/transform_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codec/integers.h"

namespace kv {
namespace {

constexpr int kMostSweeps = 30;
constexpr double kConverged = 1e-11;  // off the diagonal, of the diagonal's largest
constexpr int kMostBasis = 127;
constexpr double kSpreadsPerOctave = 4, kLeastSpread = -9;  // log2 of a mean magnitude
constexpr double kMostMeanMagnitude = 20;                   // of what a table codes

using Matrix = std::vector<double>;  // (n, n)

// Eigenvectors of a symmetric matrix in the rows of the result, which come unsorted; `a` keeps the
// eigenvalues in its diagonal. Jacobi's method.
Matrix eigenvectors(Matrix& a, size_t n) {
  Matrix v(n * n);
  for (size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  auto rotate = [n](double* x, double* y, double c, double s) {
    for (size_t k = 0; k < n; ++k) {
      const double p = x[k], q = y[k];
      x[k] = c * p - s * q;
      y[k] = s * p + c * q;
    }
  };
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0, most = 0;
    for (size_t i = 0; i < n; ++i) {
      most = std::max(most, std::fabs(a[i * n + i]));
      for (size_t j = 0; j < i; ++j) off = std::max(off, std::fabs(a[i * n + j]));
    }
    if (off <= kConverged * most) break;
    for (size_t i = 1; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) {
        const double aij = a[i * n + j];
        if (std::fabs(aij) <= kConverged * most * 0.1) continue;
        const double theta = (a[i * n + i] - a[j * n + j]) / (2 * aij);
        const double t = std::copysign(1 / (std::fabs(theta) + std::hypot(theta, 1.0)), theta);
        const double c = 1 / std::hypot(t, 1.0), s = t * c;
        rotate(&a[j * n], &a[i * n], c, s);
        for (size_t k = 0; k < n; ++k) {
          const double p = a[k * n + j], q = a[k * n + i];
          a[k * n + j] = c * p - s * q;
          a[k * n + i] = s * p + c * q;
        }
        rotate(&v[j * n], &v[i * n], c, s);
      }
    }
  }
  return v;
}

// Lower triangle L with L Lᵀ = m; false if m is not positive definite.
bool cholesky(Matrix& m, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = m[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= m[i * n + k] * m[j * n + k];
      if (i == j && !(sum > 0)) return false;
      m[i * n + j] = i == j ? std::sqrt(sum) : sum / m[j * n + j];
    }
    for (size_t j = i + 1; j < n; ++j) m[i * n + j] = 0;
  }
  return true;
}

// Lᵀ a L.
Matrix weighted(const Matrix& a, const Matrix& l, size_t n) {
  Matrix al(n * n), out(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < n; ++k) {
      for (size_t j = 0; j <= k; ++j) al[i * n + j] += a[i * n + k] * l[k * n + j];
    }
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i <= k; ++i) {
      for (size_t j = 0; j < n; ++j) out[i * n + j] += l[k * n + i] * al[k * n + j];
    }
  }
  return out;
}

// In place: x with Lᵀ x = what it was.
void solve_upper(const Matrix& l, size_t n, double* x) {
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) x[i] -= l[k * n + i] * x[k];
    x[i] /= l[i * n + i];
  }
}

// One group's components into `t`; false if a vector can't be scaled.
bool put_basis(const Matrix& vectors, std::span<const size_t> order, size_t first, Transform& t) {
  const size_t n = order.size();
  for (size_t c = 0; c < n; ++c) {
    const double* v = &vectors[order[c] * n];
    double most = 0;
    for (size_t j = 0; j < n; ++j) most = std::max(most, std::fabs(v[j]));
    if (!(most > 1e-12) || !(most < 1e12)) return false;
    t.scale[first + c] = static_cast<float>(most / kMostBasis);
    for (size_t j = 0; j < n; ++j) {
      t.basis[(first + c) * n + j] = static_cast<int8_t>(std::lround(v[j] / most * kMostBasis));
    }
  }
  return true;
}

}  // namespace

RowStatistics::RowStatistics(uint32_t heads, uint32_t dim, const RotaryTurns* turns)
    : heads_(heads), dim_(dim), turns_(turns) {
  const size_t n = size_t{heads} * dim;
  sum_.resize(n);
  products_.resize(n * n);
}

void RowStatistics::add(std::span<const float> rows, uint32_t first) {
  const size_t n = sum_.size(), count = rows.size() / n;
  std::vector<float> plain(rows.begin(), rows.end());
  if (turns_ != nullptr) turns_->turn(plain.data(), count, n, first, heads_, dim_, true);
  for (size_t r = 0; r < count; ++r) {
    const float* x = &plain[r * n];
    for (size_t i = 0; i < n; ++i) {
      sum_[i] += x[i];
      double* __restrict to = &products_[i * n];
      const double xi = x[i];
      for (size_t j = 0; j <= i; ++j) to[j] += xi * x[j];
    }
  }
  count_ += count;
}

double RowStatistics::variance() const {
  const size_t n = sum_.size();
  const auto rows = static_cast<double>(count_);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += products_[i * n + i] / rows - sum_[i] / rows * (sum_[i] / rows);
  }
  return sum / static_cast<double>(n);
}

Result<Transform> RowStatistics::transform(uint32_t width, std::span<const double> metric) const {
  const size_t values = sum_.size(), n = width;
  if (count_ == 0 || n == 0 || values % n != 0) {
    return invalid_argument("transform: no rows, or a width that does not divide them");
  }
  Transform t;
  t.width = width;
  t.scale.resize(values);
  t.basis.resize(values * n);
  t.table.resize(values);
  t.low_bits.resize(values);
  const auto rows = static_cast<double>(count_);
  for (double s : sum_) t.mean.push_back(static_cast<float>(s / rows) + 0.0f);
  for (size_t first = 0; first < values; first += n) {
    Matrix a(n * n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const size_t p = first + i, q = first + j;
        a[i * n + j] = a[j * n + i] =
            products_[p * values + q] / rows - sum_[p] / rows * (sum_[q] / rows);
      }
    }
    Matrix l;
    if (!metric.empty()) {
      l.assign(metric.begin() + static_cast<ptrdiff_t>(first * n),
               metric.begin() + static_cast<ptrdiff_t>((first + n) * n));
      if (!cholesky(l, n)) return invalid_argument("transform: the metric is not positive");
      a = weighted(a, l, n);
    }
    Matrix v = eigenvectors(a, n);
    for (size_t c = 0; !l.empty() && c < n; ++c) solve_upper(l, n, &v[c * n]);
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order,
                             [&](size_t x, size_t y) { return a[x * n + x] > a[y * n + y]; });
    if (!put_basis(v, order, first, t)) return invalid_argument("transform: no basis");
  }
  return t;
}

void TableFit::add(Transform& t, std::span<const int16_t> integers, uint32_t rows) {
  const size_t lanes = lane_rows(rows);
  for (size_t c = 0; c < t.mean.size(); ++c) {
    const int16_t* values = &integers[c * lanes];
    double magnitude = 0;
    for (uint32_t r = 0; r < rows; ++r) magnitude += std::abs(int{values[r]});
    magnitude = magnitude / rows;
    uint8_t bits = 0;
    for (; bits < kMaxLowBits && magnitude > kMostMeanMagnitude; ++bits) magnitude /= 2;
    const double spread = (std::log2(std::max(magnitude, 1e-9)) - kLeastSpread) * kSpreadsPerOctave;
    const auto table = static_cast<size_t>(std::clamp(spread, 0.0, double{kSpreads - 1}));
    t.low_bits[c] = bits;
    t.table[c] = static_cast<uint8_t>(table);
    for (uint32_t r = 0; r < rows; ++r) {
      const int top = values[r] >> bits;
      counts_[table][std::abs(top) <= kMostTableValue ? top + 128 : 0] += 1;
    }
  }
}

std::vector<IntegerTable> TableFit::finish() const {
  constexpr double kLeastShare = 0.4 / kTableTotal;  // a rarer value is an escape
  std::vector<IntegerTable> tables(kSpreads);
  for (size_t i = 0; i < kSpreads; ++i) {
    const double all = std::accumulate(counts_[i].begin(), counts_[i].end(), 0.0) + 1;
    auto seen = [&](int value) { return counts_[i][static_cast<size_t>(value + 128)]; };
    int first = 0, last = 0;
    while (last < kMostTableValue && seen(last + 1) >= kLeastShare * all) ++last;
    while (first > -kMostTableValue && seen(first - 1) >= kLeastShare * all) --first;
    double kept = 1;
    for (int v = first; v <= last; ++v) kept += seen(v);
    // Values outside and their share; one part of every value's own.
    const auto escape =
        std::clamp(std::lround((all - kept) / all * kTableTotal), 1l, long{kTableTotal} / 2);
    const auto values = static_cast<uint32_t>(last - first + 1);
    const uint32_t budget = kTableTotal - static_cast<uint32_t>(escape);
    uint32_t left = budget;
    for (int v = first; v <= last; ++v) {
      const double share = seen(v) / kept * (budget - values);
      tables[i].counts.push_back(static_cast<uint16_t>(1 + static_cast<uint32_t>(share)));
      left -= tables[i].counts.back();
    }
    uint16_t& most = *std::ranges::max_element(tables[i].counts);
    most = static_cast<uint16_t>(most + left);
    tables[i].first = static_cast<int8_t>(first);
  }
  return tables;
}

}  // namespace kv
