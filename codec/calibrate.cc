// Sums per key channel, and the profile's mean and gain from them.
#include "codec/calibrate.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace kv {
namespace {

/// A channel's variance counts as at least this share of its head's mean variance: a channel that
/// (nearly) never moves would otherwise get an unbounded gain.
constexpr double kVarianceFloor = 1e-4;
/// Gains stay within 1/8 … 8 of the head's root mean square.
constexpr double kGainMax = 8.0;

// x^(1/4) from square roots alone: exact rounding rules, no libm differences between machines.
double fourth_root(double x) { return std::sqrt(std::sqrt(x)); }

}  // namespace

KeyStatistics::KeyStatistics(const ModelSpec& model) : model_(model) {
  for (const LayerSpec& layer : model_.layers) {
    std::vector<Part>& parts = parts_.emplace_back(layer.parts.size());
    for (size_t p = 0; p < parts.size(); ++p) {
      const PartSpec& spec = layer.parts[p];
      if (!spec.has_rows() || spec.v_dim == 0) continue;
      parts[p].heads = spec.heads;
      parts[p].dim = spec.k_dim;
      const size_t channels = size_t{spec.heads} * spec.k_dim;
      parts[p].key_sum.assign(channels, 0);
      parts[p].key_square_sum.assign(channels, 0);
      parts[p].query_square_sum.assign(channels, 0);
    }
  }
}

Result<KeyStatistics::Part*> KeyStatistics::find(uint32_t layer, uint32_t part, uint32_t width,
                                                 std::span<const float> rows) {
  const std::string where =
      "calibrate: layer " + std::to_string(layer) + " part " + std::to_string(part) + ": ";
  if (layer >= parts_.size() || part >= parts_[layer].size() || parts_[layer][part].heads == 0) {
    return invalid_argument(where + "no keys of its own");
  }
  Part& p = parts_[layer][part];
  const size_t values = size_t{p.heads} * p.dim * width;
  if (width == 0 || width > kMaxHeads || rows.size() % values != 0) {
    return invalid_argument(where + std::to_string(rows.size()) +
                            " values, expected a multiple of " + std::to_string(values));
  }
  if (!std::ranges::all_of(rows, [](float x) { return std::isfinite(x); })) {
    return invalid_argument(where + "a value is not finite");
  }
  return &p;
}

Status KeyStatistics::add_keys(uint32_t layer, uint32_t part, uint32_t first_row,
                               std::span<const float> rows) {
  KV_ASSIGN_OR_RETURN(Part * p, find(layer, part, 1, rows));
  const size_t width = size_t{p->heads} * p->dim;
  for (size_t r = 0; r < rows.size() / width; ++r) {
    if (first_row + r < kSkippedTokens) continue;
    const float* row = rows.data() + r * width;
    for (size_t j = 0; j < width; ++j) {
      p->key_sum[j] += row[j];
      p->key_square_sum[j] += double{row[j]} * row[j];
    }
    ++p->key_rows;
  }
  return {};
}

Status KeyStatistics::add_queries(uint32_t layer, uint32_t part, uint32_t first_row, uint32_t group,
                                  std::span<const float> rows) {
  KV_ASSIGN_OR_RETURN(Part * p, find(layer, part, group, rows));
  const size_t vectors = size_t{p->heads} * group;
  for (size_t r = 0; r < rows.size() / (vectors * p->dim); ++r) {
    if (first_row + r < kSkippedTokens) continue;
    for (size_t v = 0; v < vectors; ++v) {
      const float* q = rows.data() + (r * vectors + v) * p->dim;
      double* sum = p->query_square_sum.data() + v / group * p->dim;
      for (size_t j = 0; j < p->dim; ++j) sum[j] += double{q[j]} * q[j];
    }
  }
  return {};
}

// Per head: mean = E k; gain = (E q^2 / Var k)^(1/4) (E q^2 = 1 without queries), divided by its
// root mean square over the head: only the ratios matter, and this keeps scales in fp16's range.
void KeyStatistics::fill(const Part& part, PartCoding& coding) {
  const size_t dim = part.dim, channels = part.heads * dim;
  coding.key_mean.resize(channels);
  coding.key_gain.assign(channels, 1.0f);
  std::vector<double> variance(channels), gain(dim);
  const auto n = static_cast<double>(part.key_rows);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = part.key_sum[c] / n;
    coding.key_mean[c] = static_cast<float>(mean);
    variance[c] = std::max(0.0, part.key_square_sum[c] / n - mean * mean);
  }
  for (size_t h = 0; h < part.heads; ++h) {
    double total = 0, query_total = 0, square_sum = 0;
    for (size_t j = 0; j < dim; ++j) {
      total += variance[h * dim + j];
      query_total += part.query_square_sum[h * dim + j];
    }
    const double floor = kVarianceFloor * total / static_cast<double>(dim);
    const double query_floor = kVarianceFloor * query_total / static_cast<double>(dim);
    if (!(floor > 0)) continue;  // keys of this head never change
    for (size_t j = 0; j < dim; ++j) {
      const double q =
          query_total > 0 ? std::max(part.query_square_sum[h * dim + j], query_floor) : 1;
      gain[j] = fourth_root(q / std::max(variance[h * dim + j], floor));
      square_sum += gain[j] * gain[j];
    }
    const double centre = std::sqrt(square_sum / static_cast<double>(dim));
    for (size_t j = 0; j < dim; ++j) {
      coding.key_gain[h * dim + j] =
          static_cast<float>(std::clamp(gain[j] / centre, 1 / kGainMax, kGainMax));
    }
  }
}

Result<Profile> KeyStatistics::calibrated(const Profile& base) const {
  KV_RETURN_IF_ERROR(validate(base, model_));
  Profile profile = base;
  for (size_t l = 0; l < parts_.size(); ++l) {
    for (size_t p = 0; p < parts_[l].size(); ++p) {
      if (profile.parts[l][p].k_bits == 0 || parts_[l][p].key_rows < kMinRows) continue;
      fill(parts_[l][p], profile.parts[l][p]);
    }
  }
  KV_RETURN_IF_ERROR(validate(profile, model_));
  return profile;
}

}  // namespace kv
