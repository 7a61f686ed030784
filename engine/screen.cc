// See screen.h.
#include "engine/screen.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/float16.h"
#include "proto/status.h"

namespace kv {
namespace {

constexpr uint64_t kLeastBytes = 64u << 20;
// The 4-bit range ends at 0.9 of a group's largest weight: of .8, .9 and 1 the one that left fewest
// rows of Gemma-3's head.
constexpr float kRange = 0.9f, kMiddle = 7.5f;
// Weights whose scale is an fp16 and whose square an fp32, and lengths |x / s| with which no bound
// leaves what fp32 holds with all its digits.
constexpr float kMostWeight = 100'000, kLeastWeight = 1e-15f, kMostInput = 1e25f,
                kLeastInput = 1e-15f;
// A sum of n fp32 products is off by less than n * 2^-24 of the sum of their absolute values, in
// any order; n <= 16,384 in 16 lanes at least, and three such sums meet here.
constexpr double kSumsLose = 1e-3;

// out = codes of x; returns |x - x'|^2.
double to_bytes(const float* x, const float* weight, int8_t* codes, float& scale) {
  float most = 0;
  for (uint32_t j = 0; j < 32; ++j) most = std::max(most, std::fabs(x[j]));
  scale = most / 127;
  double lost = 0;
  for (uint32_t j = 0; j < 32; ++j) {
    const float code = scale > 0 ? x[j] / scale : 0;
    codes[j] = static_cast<int8_t>(std::lrint(std::clamp(code, -127.0f, 127.0f)));
    double d = static_cast<double>(x[j]) - static_cast<double>(scale) * codes[j];
    lost += d * d / (static_cast<double>(weight[j]) * weight[j]);
  }
  return lost;
}

// One group of row r into its block; adds |w - w'|^2 and |w'|^2. One that is not finite loses
// infinitely much, so that its row is always looked at; so does one whose squares fp32 can't hold.
void copy_group(const float* w, const float* weight, uint32_t r, uint8_t* group, double& lost,
                double& held) {
  float most = 0, sum = 0;
  for (uint32_t j = 0; j < 32; ++j) {
    most = std::max(most, std::fabs(w[j]));
    sum += w[j];
  }
  if (!std::isfinite(sum) || most > kMostWeight || (most > 0 && most < kLeastWeight)) {
    lost = std::numeric_limits<double>::infinity();
    return;
  }
  const uint16_t half = float_to_half(most * (kRange / kMiddle));
  const float scale = half_to_float(half);
  const float over = scale > 0 ? 1 / scale : 0;
  float group_lost = 0, group_held = 0;
  for (uint32_t j = 0; j < 32; ++j) {
    const int code = std::clamp(static_cast<int>(w[j] * over + 8), 0, 15);
    const float value = (static_cast<float>(code) - kMiddle) * scale;
    const float square = weight[j] * weight[j];
    group_lost += (w[j] - value) * (w[j] - value) * square;
    group_held += value * value * square;
    group[j % 16 / 4 * 64 + 4 * r + j % 4] |= static_cast<uint8_t>(code << (j < 16 ? 0 : 4));
  }
  lost += static_cast<double>(group_lost);
  held += static_cast<double>(group_held);
  std::memcpy(group + 256 + size_t{2} * r, &half, 2);
}

}  // namespace

bool Screen::pays(const Matrix& w) {
  return w.rows * w.stride >= kLeastBytes && w.columns <= kMostColumns &&
         w.stride * 32 >= uint64_t{34} * w.columns;
}

Screen::Screen(const Matrix& w, std::span<const float> typical, Threads& threads)
    : w_(w), threads_(threads) {
  KV_CHECK(w.columns % 32 == 0 && w.columns <= kMostColumns && typical.size() == w.columns);
  KV_CHECK(w.panels == nullptr);  // their sums may lose more
  const float most = *std::max_element(typical.begin(), typical.end());
  for (float v : typical) weight_.push_back(std::sqrt(v > most * 1e-3f ? v / most : 1e-3f));
  const uint32_t blocks = (w.rows - 1) / kScreenRows + 1, groups = w.columns / 32;
  blocks_ = zeroed_large_pages(uint64_t{blocks} * groups * kScreenGroupBytes);
  for (auto* v : {&lost_, &held_}) v->resize(size_t{blocks} * kScreenRows);
  upper_.resize(size_t{blocks} * kScreenRows);
  input_.codes.resize(w.columns);
  input_.codes_15.resize(groups);
  input_.scale.resize(groups);
  each_strip([this](uint32_t first, uint32_t end) {
    for (uint32_t block = first; block < end; ++block) copy_block(block);
    return Best();
  });
}

// body(first, end) for strips of blocks over the threads; the best of what it returns.
template <typename Body>
Screen::Best Screen::each_strip(const Body& body) {
  const auto blocks = static_cast<uint32_t>(upper_.size() / kScreenRows);
  const uint32_t strips = std::min(threads_.count() * 4, blocks);
  std::vector<Best> found(strips);
  threads_.run(strips, [&](uint32_t strip, uint32_t) {
    found[strip] = body(static_cast<uint32_t>(uint64_t{blocks} * strip / strips),
                        static_cast<uint32_t>(uint64_t{blocks} * (strip + 1) / strips));
  });
  Best best;
  for (const Best& one : found) {
    best.offer(one.value, one.row);
    best.looked_at += one.looked_at;
  }
  return best;
}

void Screen::copy_block(uint32_t block) {
  const uint32_t groups = w_.columns / 32;
  std::vector<float> row(w_.columns);
  uint8_t* at = blocks_.data() + size_t{block} * groups * kScreenGroupBytes;
  for (uint32_t r = 0; r < kScreenRows; ++r) {
    const uint32_t index = block * kScreenRows + r;
    if (index >= w_.rows) return;  // zeros
    dequantise_row(w_, index, row.data());
    double lost = 0, held = 0;
    for (uint32_t g = 0; g < groups; ++g) {
      copy_group(row.data() + size_t{g} * 32, weight_.data() + size_t{g} * 32, r,
                 at + size_t{g} * kScreenGroupBytes, lost, held);
    }
    lost_[index] = static_cast<float>(std::sqrt(lost));
    held_[index] = static_cast<float>(std::sqrt(held));
  }
}

// Every row's bound; offers the row that looks best.
void Screen::estimate(uint32_t block, Best& best) {
  const uint32_t groups = w_.columns / 32, first = block * kScreenRows;
  float product[kScreenRows];
  const float most = engine_kernels().screen(
      blocks_.data() + size_t{block} * groups * kScreenGroupBytes, groups, input_, product);
  if (first + kScreenRows > w_.rows) {
    for (uint32_t r = 0; r < w_.rows - first; ++r) best.offer(product[r], first + r);
  } else if (most > best.value) {
    const auto r = static_cast<uint32_t>(std::find(product, product + 15, most) - product);
    best.offer(most, first + r);
  }
  for (uint32_t r = 0; r < kScreenRows; ++r) {
    upper_[first + r] = product[r] + (lost_[first + r] * per_lost_ + held_[first + r] * per_held_);
  }
}

// The rows whose product may be `least` or more.
std::vector<uint32_t> Screen::left(uint32_t first_block, uint32_t end, float least) const {
  std::vector<uint32_t> rows;
  for (uint32_t block = first_block; block < end; ++block) {
    const float* upper = upper_.data() + size_t{block} * kScreenRows;
    uint32_t any = 0;
    for (uint32_t r = 0; r < kScreenRows; ++r) any |= upper[r] < least ? 0 : 1u << r;
    for (; any != 0; any &= any - 1) {
      const uint32_t row = block * kScreenRows + static_cast<uint32_t>(std::countr_zero(any));
      if (row < w_.rows) rows.push_back(row);
    }
  }
  return rows;
}

Screen::Best Screen::look_at(std::span<const uint32_t> rows, const float* x) const {
  constexpr size_t kAhead = 6;  // rows stand anywhere in memory
  Best best;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      const uint8_t* next = w_.data + rows[i + kAhead] * w_.stride;
      for (uint64_t byte = 0; byte < w_.stride; byte += 64) __builtin_prefetch(next + byte);
    }
    float product;
    multiply(w_, {x}, rows[i], rows[i] + 1, &product, 0);
    best.offer(product, rows[i]);
  }
  best.looked_at = static_cast<uint32_t>(rows.size());
  return best;
}

// Returns whether x is one that a bound can be given for.
bool Screen::take_input(const float* x) {
  double lost = 0, all = 0;
  for (uint32_t g = 0; g < w_.columns / 32; ++g) {
    const float *v = x + size_t{g} * 32, *weight = weight_.data() + size_t{g} * 32;
    for (uint32_t j = 0; j < 32; ++j) {
      const double scaled = static_cast<double>(v[j]) / weight[j];
      all += scaled * scaled;
    }
    if (!std::isfinite(all)) return false;
    lost += to_bytes(v, weight, input_.codes.data() + size_t{g} * 32, input_.scale[g]);
    input_.codes_15[g] = 0;
    for (uint32_t j = 0; j < 32; ++j) input_.codes_15[g] += 15 * input_.codes[g * 32 + j];
  }
  per_lost_ = static_cast<float>(std::sqrt(all) * (1 + kSumsLose));
  per_held_ = static_cast<float>(std::sqrt(lost) + std::sqrt(all) * kSumsLose);
  return per_lost_ >= kLeastInput && per_lost_ <= kMostInput;
}

std::optional<uint32_t> Screen::best(const float* x) {
  constexpr uint32_t kMostLeft = 8;  // of more rows the look costs what the screen saves
  constexpr uint32_t kRest = 64;
  if (rest_ > 0) return --rest_, std::nullopt;
  if (!take_input(x)) return {};
  const Best likely = each_strip([this](uint32_t first, uint32_t end) {
    Best best;
    for (uint32_t block = first; block < end; ++block) estimate(block, best);
    return best;
  });
  float least;
  multiply(w_, {x}, likely.row, likely.row + 1, &least, 0);
  if (!std::isfinite(least)) return rest_ = kRest, std::nullopt;
  const Best best =
      each_strip([&](uint32_t first, uint32_t end) { return look_at(left(first, end, least), x); });
  KV_CHECK(best.looked_at > 0);  // the likely one
  if (best.looked_at > w_.rows / kMostLeft) rest_ = kRest;
  return best.row;
}

}  // namespace kv
