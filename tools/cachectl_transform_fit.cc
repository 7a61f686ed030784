// Bases from rows, steps from what each side alone costs, tables from a sample. See
// cachectl_transform_fit.h.
#include "tools/cachectl_transform_fit.h"

#include <algorithm>
#include <cmath>

#include "codec/transform.h"
#include "engine/teacher_link.h"

namespace kv::cachectl {
namespace {

constexpr uint32_t kExactTokens = 4;       // as profiles have them
constexpr uint32_t kSampleEvery = 8;       // rows
constexpr uint32_t kMostSample = 1536;     // rows of a side
constexpr double kMeasuredError = 0.01;    // of a row's variance, when a side is coded alone
constexpr double kLeastDivergence = 1e-7;  // below it a measurement is noise
constexpr uint32_t kRatedTokens = 3072;    // as for plans of bits
constexpr int kScaleSearches = 14;
constexpr uint64_t kMostBasisBytes = kMaxProfileBytes / 16 * 15;  // the rest: means, tables
const std::vector<IntegerTable> kNoTables = {{0, {1}}};           // everything an escape

Result<std::shared_ptr<const TransformTables>> tables_of(TransformSet set) {
  return TransformTables::create(std::make_shared<const TransformSet>(std::move(set)));
}

// `code` on the rows of each block; the first tokens' stay.
Status each_block(uint32_t first, std::span<float> rows, size_t width,
                  const std::function<Status(uint32_t, std::span<float>)>& code) {
  const auto end = static_cast<uint32_t>(first + rows.size() / width);
  for (uint32_t at = std::max(first, kExactTokens); at < end;) {
    const uint32_t next = std::min(end, (at / kTeacherBlock + 1) * kTeacherBlock);
    KV_RETURN_IF_ERROR(code(at, rows.subspan((at - first) * width, (next - at) * width)));
    at = next;
  }
  return {};
}

// One side alone.
RowCoder alone(std::shared_ptr<const TransformCoder> coder) {
  return [coder = std::move(coder)](uint32_t, Side, uint32_t first, std::span<float> rows) {
    return each_block(first, rows, coder->values(), [&](uint32_t at, std::span<float> block) {
      const auto stream = coder->encode(block, at);
      const auto count = static_cast<uint32_t>(block.size() / coder->values());
      return stream ? coder->decode(*stream, count, at, 0, count, block) : Status();
    });
  };
}

// Rotations of full layers and, where they differ, of windowed ones.
std::vector<Rotation> rotations_of(const ModelShape& shape) {
  std::vector<Rotation> out;
  for (float base : {shape.rope_base, shape.local_rope_base}) {
    if (!(base > 0)) break;
    Rotation rotation{shape.architecture == Architecture::gemma3, {}};
    for (uint32_t i = 0; i < shape.head_dim / 2; ++i) {
      rotation.step.push_back(
          static_cast<float>(std::pow(static_cast<double>(base), -2.0 * i / shape.head_dim)));
    }
    out.push_back(std::move(rotation));
  }
  return out;
}

// Half the logarithm of the determinant of a covariance (dim, dim), destroyed: Cholesky's diagonal.
double half_log_determinant(std::vector<double>& m, size_t dim) {
  double sum = 0;
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double x = m[i * dim + j];
      for (size_t k = 0; k < j; ++k) x -= m[i * dim + k] * m[j * dim + k];
      m[i * dim + j] = i == j ? std::sqrt(std::max(x, 1e-30)) : x / m[j * dim + j];
    }
    sum += std::log(m[i * dim + i]);
  }
  return sum;
}

// The bits that the rows (count, heads, dim) at positions first … take with a basis for each head,
// but for a constant and a factor: the smaller, the better their rotation is undone.
double log_spread(std::span<const float> rows, uint32_t first, uint32_t heads, uint32_t dim,
                  const RotaryTurns* turns) {
  const size_t width = size_t{heads} * dim, count = rows.size() / width;
  const size_t every = std::max<size_t>(1, count / kMostSample);
  std::vector<float> turned;
  for (size_t r = 0; r < count; r += every) {
    turned.insert(turned.end(), rows.begin() + static_cast<ptrdiff_t>(r * width),
                  rows.begin() + static_cast<ptrdiff_t>((r + 1) * width));
    float* row = turned.data() + turned.size() - width;
    if (turns) turns->turn(row, 1, width, first + static_cast<uint32_t>(r), heads, dim, true);
  }
  const size_t used = turned.size() / width;
  double sum = 0;
  for (size_t h = 0; h < heads; ++h) {
    std::vector<double> mean(dim), covariance(size_t{dim} * dim);
    for (size_t r = 0; r < used; ++r) {
      for (size_t i = 0; i < dim; ++i) mean[i] += turned[r * width + h * dim + i];
    }
    for (double& m : mean) m /= static_cast<double>(used);
    for (size_t r = 0; r < used; ++r) {
      const float* row = turned.data() + r * width + h * dim;
      for (size_t i = 0; i < dim; ++i) {
        for (size_t j = 0; j <= i; ++j) {
          covariance[i * dim + j] += (row[i] - mean[i]) * (row[j] - mean[j]);
        }
      }
    }
    double trace = 0;  // fewer rows than values: what they lack counts as a thousandth
    for (size_t i = 0; i < dim; ++i) trace += covariance[i * dim + i];
    for (size_t i = 0; i < dim; ++i) covariance[i * dim + i] += 1e-3 * trace / dim;
    sum += half_log_determinant(covariance, dim);
  }
  return sum;
}

void scale_by(Transform& t, double step) {
  for (float& s : t.scale) s = static_cast<float>(s * step);
}

}  // namespace

TransformFitter::TransformFitter(const CalibratedModel& model, Meter& meter,
                                 std::vector<Rotation> told)
    : model_(model), meter_(meter), rotations_(std::move(told)) {
  if (model.model != nullptr) rotations_ = rotations_of(model.model->shape());
  for (const Rotation& rotation : rotations_) turns_.emplace_back(rotation);
}

// With a side's first rows, those behind the exact tokens: finds out how they were turned.
void TransformFitter::begin(SideFit& side, uint32_t first, std::span<const float> rows) {
  if (side.side == Side::k && model_.model != nullptr && !turns_.empty()) {
    side.turns = &turns_[model_.model->shape().windowed(side.at.layer) ? 1 : 0];
  } else if (side.side == Side::k) {
    double least = log_spread(rows, first, side.heads, side.dim, nullptr);
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (2 * rotations_[i].step.size() > side.dim) continue;
      const double spread = log_spread(rows, first, side.heads, side.dim, &turns_[i]);
      if (spread >= least) continue;
      least = spread;
      side.turns = &turns_[i];
    }
  }
  side.statistics = std::make_unique<RowStatistics>(side.heads, side.dim, side.turns);
}

// Statistics and samples of all sides.
Status TransformFitter::gather() {
  KV_ASSIGN_OR_RETURN(auto parts, row_parts(model_.spec));
  std::vector<size_t> first_side(model_.spec.layers.size());
  for (const RowPart& at : parts) {
    first_side[at.layer] = sides_.size();
    for (const SideSpec& spec : sides_of(at.spec)) {
      sides_.push_back({at, spec.side, spec.heads, spec.dim, nullptr, nullptr, {}});
    }
  }
  const RowCoder look = [&](uint32_t layer, Side which, uint32_t first, std::span<float> rows) {
    SideFit& side = sides_[first_side[layer] + (which == Side::v ? 1 : 0)];
    const size_t width = size_t{side.heads} * side.dim;
    const uint32_t skip = kExactTokens - std::min(first, kExactTokens);
    if (rows.size() <= skip * width) return Status();
    const auto coded = rows.subspan(skip * width);
    if (side.statistics == nullptr) begin(side, first + skip, coded);
    side.statistics->add(coded, first + skip);
    for (size_t r = skip; r < rows.size() / width; r += kSampleEvery) {
      if (side.sample.size() >= kMostSample * width) break;
      std::vector<float> row(rows.begin() + static_cast<ptrdiff_t>(r * width),
                             rows.begin() + static_cast<ptrdiff_t>((r + 1) * width));
      if (side.turns != nullptr) {
        side.turns->turn(row.data(), 1, width, first + static_cast<uint32_t>(r), side.heads,
                         side.dim, true);
      }
      side.sample.insert(side.sample.end(), row.begin(), row.end());
    }
    return Status();
  };
  return meter_.measure(std::span(&look, 1)).status();
}

Status TransformFitter::measure(StatusLine& line) {
  line.show("rows");
  KV_RETURN_IF_ERROR(gather());
  // All heads together, unless no profile could hold their bases.
  uint64_t values = 0;
  bool joint = true;
  for (const SideFit& side : sides_) {
    const uint64_t row = uint64_t{side.heads} * side.dim;
    values += row * row;
    joint = joint && row <= kMaxTransformWidth && values <= kMostBasisBytes;
  }
  unit_.rotations = rotations_;
  unit_.tables = kNoTables;
  for (SideFit& side : sides_) {
    line.show("basis of layer " + std::to_string(side.at.layer));
    if (side.statistics == nullptr) {
      return invalid_argument("text: no rows of layer " + std::to_string(side.at.layer));
    }
    const uint32_t width = joint ? side.heads * side.dim : side.dim;
    KV_ASSIGN_OR_RETURN(Transform t, side.statistics->transform(width));
    if (side.turns != nullptr) t.rotation = static_cast<uint16_t>(side.turns - turns_.data());
    side.step = std::sqrt(12 * kMeasuredError * side.statistics->variance());
    unit_.transforms.push_back(std::move(t));
  }
  line.show("sides of layers");
  TransformSet measured = unit_;
  for (size_t i = 0; i < sides_.size(); ++i) scale_by(measured.transforms[i], sides_[i].step);
  KV_ASSIGN_OR_RETURN(auto tables, tables_of(std::move(measured)));
  std::vector<RowCoder> codings;
  for (size_t i = 0; i < sides_.size(); ++i) {
    KV_ASSIGN_OR_RETURN(auto coder,
                        TransformCoder::create(tables, i, sides_[i].heads, sides_[i].dim));
    codings.push_back(only(alone(std::move(coder)), sides_[i].at.layer, sides_[i].side));
  }
  KV_ASSIGN_OR_RETURN(auto found, meter_.measure(codings));
  for (size_t i = 0; i < sides_.size(); ++i) {
    sides_[i].divergence = std::max(found[i].mean_kld(), kLeastDivergence);
  }
  return {};
}

// A step with which a bit more or less costs as much as in every other side: the divergence goes
// with the step's square, the bits with the side's values.
double TransformFitter::costly_step(const SideFit& side) {
  return side.step * std::sqrt(side.heads * side.dim / side.divergence);
}

// Transforms whose steps are `scale` times those that cost as much a bit; their bytes over fp16's.
Result<double> TransformFitter::try_scale(double scale, TransformSet& out) const {
  out = unit_;
  double usual = 0;  // mean of the logarithms of the steps that cost as much a bit
  for (const SideFit& side : sides_) {
    usual += std::log2(costly_step(side) / side.step) / static_cast<double>(sides_.size());
  }
  TransformSet plain;  // of samples, whose rotation is undone
  plain.tables = kNoTables;
  TableFit fit;
  std::vector<double> values;
  for (size_t i = 0; i < sides_.size(); ++i) {
    const SideFit& side = sides_[i];
    const auto width = static_cast<double>(side.heads * side.dim);
    scale_by(out.transforms[i], scale * costly_step(side) / std::exp2(usual));
    plain.transforms.assign(1, out.transforms[i]);
    plain.transforms[0].rotation = kNoRotation;
    KV_ASSIGN_OR_RETURN(auto tables, tables_of(plain));
    KV_ASSIGN_OR_RETURN(auto coder, TransformCoder::create(tables, 0, side.heads, side.dim));
    const auto integers = coder->integers(side.sample, 0);
    if (!integers) return 1.0;  // a step so small that integers don't fit
    fit.add(out.transforms[i], *integers,
            static_cast<uint32_t>(side.sample.size() / static_cast<size_t>(width)));
  }
  out.tables = plain.tables = fit.finish();
  double stored = 0, whole = 0;
  for (size_t i = 0; i < sides_.size(); ++i) {
    const SideFit& side = sides_[i];
    plain.transforms.assign(1, out.transforms[i]);
    plain.transforms[0].rotation = kNoRotation;
    KV_ASSIGN_OR_RETURN(auto tables, tables_of(plain));
    KV_ASSIGN_OR_RETURN(auto coder, TransformCoder::create(tables, 0, side.heads, side.dim));
    const auto stream = coder->encode(side.sample, 0);
    if (!stream) return 1.0;
    const double row = 2.0 * side.heads * side.dim;
    const double rows = static_cast<double>(side.sample.size()) * 2 / row;
    stored += kExactTokens * row +
              (kRatedTokens - kExactTokens) * static_cast<double>(stream->size()) / rows;
    whole += kRatedTokens * row;
  }
  return stored / whole;
}

Result<TransformSet> TransformFitter::fit(double budget) const {
  double least = -10, most = 10;  // log2 of the scale
  TransformSet out;
  for (int i = 0; i < kScaleSearches; ++i) {
    const double middle = (least + most) / 2;
    KV_ASSIGN_OR_RETURN(const double ratio, try_scale(std::exp2(middle), out));
    (ratio > budget ? least : most) = middle;
  }
  KV_RETURN_IF_ERROR(try_scale(std::exp2(most), out).status());
  return out;
}

}  // namespace kv::cachectl
