// Codec::create, checks and decoding. Encoding is in encode.cc.
#include "codec/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "codec/finite.h"
#include "codec/float16.h"
#include "codec/transform.h"
#include "codec/turboquant.h"
#include "codec/values.h"

namespace kv {
namespace {

std::string where(uint32_t layer, uint32_t part, Side side) {
  return "layer " + std::to_string(layer) + " part " + std::to_string(part) + " " +
         to_string(side) + ": ";
}

Status mismatch(const Plane& p, const std::string& field, uint64_t expected, uint64_t given) {
  return invalid_argument(where(p.layer, p.part, p.side) + field + ": expected " +
                          std::to_string(expected) + ", given " + std::to_string(given));
}

// Scales are finite and not negative: a set sign or full exponent is damage.
bool valid_scales(const uint8_t* data, size_t n) {
  bool ok = true;
  for (size_t i = 0; i < n; ++i) {
    uint16_t v;
    std::memcpy(&v, data + 2 * i, 2);
    ok &= v < 0x7C00u;
  }
  return ok;
}

}  // namespace

bool codable_dim(uint32_t dim) {
  if (dim < kMinCodedDim || dim > kMaxCodedDim || dim % 4 != 0) return false;
  bool spreads = true;
  for_each_odd_factor(rotation_shape(dim),
                      [&](uint32_t p, uint32_t) { spreads &= p <= kMaxOddFactor; });
  return spreads;
}

Status Codec::add_side(uint32_t layer, uint32_t part, const SideSpec& spec,
                       const std::shared_ptr<const TransformTables>& tables) {
  const PartCoding& coding = profile_->coding(layer, part);
  const PartSpec& p = model_.layers[layer].parts[part];
  SideCoding& side = sides_[layer][part][static_cast<size_t>(spec.side)];
  const bool may_code = p.v_dim > 0 && p.kind != PartKind::latent && p.kind != PartKind::pooled;
  const uint8_t word = coding.word(spec.side);
  side.bits = word == kTransformWord ? 0 : word;
  side.heads = spec.heads;
  side.dim = spec.dim;
  side.raw_dtype = may_code ? profile_->raw_dtype : p.dtype;
  if (word == kTransformWord) {
    KV_ASSIGN_OR_RETURN(side.coder, TransformCoder::create(tables, coding.transform(spec.side),
                                                           spec.heads, spec.dim, kernels_));
  }
  if (side.bits == 0) return {};
  if (!codable_dim(spec.dim)) {
    return unsupported(where(layer, part, spec.side) + "head_dim " + std::to_string(spec.dim) +
                       " can't be coded (" + kCodableDims + "); set its bits to 0");
  }
  side.signs =
      std::make_shared<const std::vector<float>>(rotation_signs(profile_->rotation_seed, spec.dim));
  if (spec.side == Side::k && (!coding.key_mean.empty() || !coding.key_gain.empty())) {
    const size_t channels = size_t{spec.heads} * spec.dim;
    side.mean = coding.key_mean;
    side.gain = coding.key_gain;
    side.mean.resize(channels, 0.0f);
    side.gain.resize(channels, 1.0f);
    side.inverse_gain.reserve(channels);
    for (float g : side.gain) {
      side.inverse_gain.push_back(1.0f / g);
      if (!std::isfinite(side.inverse_gain.back())) {
        return invalid_argument(where(layer, part, spec.side) + "key_gain: a value is too small");
      }
    }
  }
  return {};
}

Result<std::shared_ptr<const Codec>> Codec::create(const ModelSpec& model,
                                                   std::shared_ptr<const Profile> profile,
                                                   const Kernels* kernels) {
  if (profile == nullptr) return invalid_argument("codec: no profile");
  KV_RETURN_IF_ERROR(validate(*profile, model));
  if (kernels == nullptr) {
    KV_ASSIGN_OR_RETURN(kernels, select_kernels());
  }
  std::shared_ptr<Codec> codec(new Codec(model, std::move(profile), kernels));
  std::shared_ptr<const TransformTables> tables;
  if (const auto& shared = codec->profile_->transforms) {
    KV_ASSIGN_OR_RETURN(tables, TransformTables::create({shared, &shared->set}));
  }
  codec->sides_.resize(model.layers.size());
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    const auto& parts = model.layers[l].parts;
    codec->sides_[l].resize(parts.size(), std::vector<SideCoding>(3));
    for (uint32_t p = 0; p < parts.size(); ++p) {
      for (const SideSpec& spec : sides_of(parts[p])) {
        KV_RETURN_IF_ERROR(codec->add_side(l, p, spec, tables));
      }
    }
  }
  return std::shared_ptr<const Codec>(std::move(codec));
}

const SideCoding* Codec::side(uint32_t layer, uint32_t part, Side side) const {
  if (layer >= sides_.size() || part >= sides_[layer].size()) return nullptr;
  if (static_cast<size_t>(side) >= sides_[layer][part].size()) return nullptr;
  const SideCoding& s = sides_[layer][part][static_cast<size_t>(side)];
  return s.heads == 0 ? nullptr : &s;
}

Status Codec::check_shape(const Plane& plane) const {
  const SideCoding* s = side(plane.layer, plane.part, plane.side);
  if (s == nullptr) {
    return invalid_argument(where(plane.layer, plane.part, plane.side) +
                            "the model has no such side");
  }
  if (plane.heads != s->heads) return mismatch(plane, "heads", s->heads, plane.heads);
  if (plane.dim != s->dim) return mismatch(plane, "dim", s->dim, plane.dim);
  if (plane.dtype != s->raw_dtype && plane.dtype != DType::f32) {
    return invalid_argument(where(plane.layer, plane.part, plane.side) + "dtype: expected " +
                            to_string(s->raw_dtype) + " or f32, given " + to_string(plane.dtype));
  }
  uint64_t rows = 0;
  for (const RowRun& run : plane.runs) {
    if (run.form == RunForm::codes && (s->bits == 0 || plane.bits != s->bits)) {
      return mismatch(plane, "bits", s->bits, plane.bits);
    }
    if (run.form == RunForm::stream && s->coder == nullptr) {
      return invalid_argument(where(plane.layer, plane.part, plane.side) +
                              "a stream, where the profile names no transform");
    }
    rows += run.rows;
  }
  if (plane.first_row + rows > kMaxTokens) return mismatch(plane, "rows at most", kMaxTokens, rows);
  if (plane.bytes.size() != plane_bytes(plane)) {
    return mismatch(plane, "bytes", plane_bytes(plane), plane.bytes.size());
  }
  return {};
}

Status Codec::check(const Plane& plane) const {
  KV_RETURN_IF_ERROR(check_shape(plane));
  const uint8_t* data = plane.bytes.data();
  for (const RowRun& run : plane.runs) {
    const uint64_t vectors = uint64_t{run.rows} * plane.heads;
    if (run.form == RunForm::exact) {
      if (!finite_values(data, vectors * plane.dim, plane.dtype)) {
        return invalid_argument(where(plane.layer, plane.part, plane.side) +
                                "an exact value is not finite");
      }
    } else if (run.form == RunForm::codes &&
               !valid_scales(data + vectors * code_bytes(plane.dim, plane.bits), vectors)) {
      return invalid_argument(where(plane.layer, plane.part, plane.side) + "a scale is not finite");
    }
    data += run_bytes(plane, run);
  }
  return {};
}

namespace {

// Decodes rows [first, end) of one code run (relative to it) to (rows, heads, dim) of `out`.
Status decode_codes(const Kernels& kernels, const SideCoding& side, const Plane& plane,
                    const uint8_t* data, uint32_t run_rows, uint32_t first, uint32_t end, DType out,
                    uint8_t* dst) {
  const uint32_t heads = plane.heads, dim = plane.dim;
  const size_t vector_bytes = code_bytes(dim, plane.bits), width = size_t{heads} * dim;
  const uint8_t* scales = data + size_t{heads} * run_rows * vector_bytes;
  const float unit = code_unit(plane.bits) / rotation_norm(dim);
  std::vector<float> row(width);
  std::vector<int16_t> values(dim);
  for (uint32_t r = first; r < end; ++r, dst += width * dtype_bytes(out)) {
    for (uint32_t h = 0; h < heads; ++h) {
      const size_t at = size_t{h} * run_rows + r;
      uint16_t scale;
      std::memcpy(&scale, scales + 2 * at, 2);
      if (scale >= 0x7C00u) {
        return corruption(where(plane.layer, plane.part, plane.side) + "row " + std::to_string(r) +
                          " head " + std::to_string(h) + ": scale is not finite");
      }
      kernels.unpack(data + at * vector_bytes, 1, dim, plane.bits, values.data());
      kernels.decode(values.data(), dim, side.signs->data(), half_to_float(scale) * unit,
                     row.data() + size_t{h} * dim);
    }
    if (!side.mean.empty()) {
      kernels.uncenter(row.data(), side.mean.data(), side.inverse_gain.data(), width);
    }
    write_values(kernels, row.data(), width, out, dst);
  }
  return {};
}

// That a stream's run, whose first row has position `at`, is of rows that there are.
Status check_run(const RowRun& run, uint32_t at) {
  if (run.skip <= at && uint64_t{run.skip} + run.rows <= run.of) return {};
  return corruption("a stream of fewer rows than its run");
}

// Decodes rows [first, end) of one stream's run (relative to it), whose first one has position
// `at`, to (rows, heads, dim) of `out`.
Status decode_stream(const Kernels& kernels, const TransformCoder& coder, const RowRun& run,
                     uint32_t at, const uint8_t* data, uint32_t first, uint32_t end, DType out,
                     uint8_t* dst) {
  KV_RETURN_IF_ERROR(check_run(run, at));
  const size_t count = size_t{end - first} * coder.values();
  const auto rows = std::make_unique_for_overwrite<float[]>(count);
  KV_RETURN_IF_ERROR(coder.decode({data, run.bytes}, run.of, at - run.skip, run.skip + first,
                                  run.skip + end, {rows.get(), count}));
  write_values(kernels, rows.get(), count, out, dst);
  return {};
}

void convert_exact(const Kernels& kernels, const uint8_t* data, size_t n, DType in, DType out,
                   uint8_t* dst) {
  if (in == out) {
    std::memcpy(dst, data, n * dtype_bytes(in));
    return;
  }
  constexpr size_t kStep = 1024;
  float values[kStep];
  for (size_t i = 0; i < n; i += kStep) {
    const size_t count = std::min(kStep, n - i);
    read_values(kernels, data + i * dtype_bytes(in), in, values, count);
    write_values(kernels, values, count, out, dst + i * dtype_bytes(out));
  }
}

}  // namespace

Status Codec::decode_rows(const Plane& plane, uint32_t first_row, uint32_t end_row, DType out,
                          std::span<uint8_t> dst) const {
  KV_RETURN_IF_ERROR(check_shape(plane));
  if (first_row < plane.first_row || end_row > plane.end_row() || first_row > end_row) {
    return invalid_argument(where(plane.layer, plane.part, plane.side) + "rows [" +
                            std::to_string(first_row) + ", " + std::to_string(end_row) +
                            ") outside the plane's [" + std::to_string(plane.first_row) + ", " +
                            std::to_string(plane.end_row()) + ")");
  }
  const size_t row_bytes = size_t{plane.heads} * plane.dim * dtype_bytes(out);
  if (dst.size() != row_bytes * (end_row - first_row)) {
    return mismatch(plane, "destination bytes", row_bytes * (end_row - first_row), dst.size());
  }
  const SideCoding& s = *side(plane.layer, plane.part, plane.side);
  const uint8_t* data = plane.bytes.data();
  uint32_t row = plane.first_row;
  for (const RowRun& run : plane.runs) {
    const uint32_t a = std::max(row, first_row), b = std::min(row + run.rows, end_row);
    if (a < b) {
      uint8_t* to = dst.data() + (a - first_row) * row_bytes;
      if (run.form == RunForm::codes) {
        KV_RETURN_IF_ERROR(
            decode_codes(*kernels_, s, plane, data, run.rows, a - row, b - row, out, to));
      } else if (run.form == RunForm::stream) {
        Status decoded =
            decode_stream(*kernels_, *s.coder, run, row, data, a - row, b - row, out, to);
        if (!decoded.ok()) {
          return corruption(where(plane.layer, plane.part, plane.side) + decoded.message());
        }
      } else {
        convert_exact(*kernels_, data + (a - row) * run_bytes(plane, RunForm::exact, 1),
                      size_t{b - a} * plane.heads * plane.dim, plane.dtype, out, to);
      }
    }
    row += run.rows;
    data += run_bytes(plane, run);
  }
  return {};
}

Status Codec::check_streams(const Plane& plane) const {
  KV_RETURN_IF_ERROR(check_shape(plane));
  const SideCoding& s = *side(plane.layer, plane.part, plane.side);
  const uint8_t* data = plane.bytes.data();
  uint32_t row = plane.first_row;
  for (const RowRun& run : plane.runs) {
    if (run.form == RunForm::stream) {
      Status good = check_run(run, row);
      if (good.ok()) good = s.coder->check({data, run.bytes}, run.of);
      if (!good.ok()) {
        return corruption(where(plane.layer, plane.part, plane.side) + good.message());
      }
    }
    row += run.rows;
    data += run_bytes(plane, run);
  }
  return {};
}

Result<Plane> Codec::decoded(const Plane& plane, DType out) const {
  KV_RETURN_IF_ERROR(check_shape(plane));
  const uint32_t rows = plane.rows();
  std::vector<uint8_t> bytes(size_t{rows} * plane.heads * plane.dim * dtype_bytes(out));
  KV_RETURN_IF_ERROR(decode_rows(plane, plane.first_row, plane.end_row(), out, bytes));
  Plane result = plane;
  result.dtype = out;
  result.bits = 0;
  result.runs.clear();
  if (rows > 0) result.runs.push_back({RunForm::exact, rows});
  result.bytes = Bytes::owning(std::move(bytes));
  return result;
}

}  // namespace kv
