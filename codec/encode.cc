// Codec::encode and Codec::raw: exact rows → the stored form of a plane.
//
// A plane is laid out first (which rows stay exact, which become codes), then filled run by run.
// Any thread: the codec is const, everything written belongs to the call.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "codec/codec.h"
#include "codec/finite.h"
#include "codec/float16.h"
#include "codec/transform.h"
#include "codec/turboquant.h"
#include "codec/values.h"

namespace kv {
namespace {

std::string where(const Plane& p) {
  return "layer " + std::to_string(p.layer) + " part " + std::to_string(p.part) + " " +
         to_string(p.side) + ": ";
}

// Rows [first, first + rows) of an input run, going to rows [out_first, …) of an output run.
struct Piece {
  RunForm in_form;
  size_t in_offset;      // of the input run in the input's bytes
  uint32_t in_run_rows;  // rows of the input run
  uint32_t first, rows;  // within the input run
  size_t out_run;
  uint32_t out_first;
};

struct Layout {
  std::vector<RowRun> runs;
  std::vector<Piece> pieces;
};

void add_piece(Layout& layout, Piece piece, RunForm form) {
  if (piece.rows == 0) return;
  if (layout.runs.empty() || layout.runs.back().form != form) layout.runs.push_back({form, 0});
  piece.out_run = layout.runs.size() - 1;
  piece.out_first = layout.runs.back().rows;
  layout.runs.back().rows += piece.rows;
  layout.pieces.push_back(piece);
}

// Exact rows at positions >= `first_coded` become codes; code runs stay codes.
Layout lay_out(const Plane& in, uint64_t first_coded) {
  Layout layout;
  uint64_t row = in.first_row;
  size_t offset = 0;
  for (const RowRun& run : in.runs) {
    const uint32_t exact_rows =
        first_coded <= row ? 0
                           : static_cast<uint32_t>(std::min<uint64_t>(run.rows, first_coded - row));
    Piece whole{run.form, offset, run.rows, 0, run.rows, 0, 0};
    if (run.form == RunForm::codes) {
      add_piece(layout, whole, RunForm::codes);
    } else {
      Piece head = whole, rest = whole;
      head.rows = exact_rows;
      rest.first = exact_rows;
      rest.rows = run.rows - exact_rows;
      add_piece(layout, head, RunForm::exact);
      add_piece(layout, rest, RunForm::codes);
    }
    row += run.rows;
    offset += run_bytes(in, run.form, run.rows);
  }
  return layout;
}

class PlaneEncoder {
 public:
  PlaneEncoder(const Kernels& kernels, const SideCoding& side, const Plane& in,
               std::span<uint8_t> place = {})
      : kernels_(kernels),
        side_(side),
        in_(in),
        place_(place),
        width_(size_t{in.heads} * in.dim),
        row_(width_) {}

  /// The plane under `layout`; sets overflow() and returns an unusable plane if a scale doesn't
  /// fit.
  Result<Plane> run(const Layout& layout) {
    out_ = shape(layout, side_, in_);
    const size_t size = plane_bytes(out_);
    const bool placed = size == place_.size();
    std::vector<uint8_t> own(placed ? 0 : size);
    uint8_t* const begin = placed ? place_.data() : own.data();
    std::vector<size_t> offsets;
    size_t offset = 0;
    for (const RowRun& r : layout.runs) {
      offsets.push_back(offset);
      offset += run_bytes(out_, r.form, r.rows);
    }
    for (const Piece& piece : layout.pieces) {
      const RowRun& target = layout.runs[piece.out_run];
      uint8_t* to = begin + offsets[piece.out_run];
      if (target.form == RunForm::exact) {
        KV_RETURN_IF_ERROR(round_rows(piece, to));
      } else if (piece.in_form == RunForm::codes) {
        copy_codes(piece, target.rows, to);
      } else {
        KV_RETURN_IF_ERROR(code_rows(piece, target.rows, to));
        if (overflow_) break;
      }
    }
    out_.bytes = placed ? Bytes(nullptr, begin, size) : Bytes::owning(std::move(own));
    return std::move(out_);
  }
  /// The plane that `in` becomes, without bytes.
  static Plane shape(const Layout& layout, const SideCoding& side, const Plane& in) {
    Plane out = in;
    out.bytes = {};
    out.dtype = side.raw_dtype;
    out.runs = layout.runs;
    out.bits = 0;
    for (const RowRun& r : layout.runs) {
      if (r.form == RunForm::codes) out.bits = side.bits;
    }
    return out;
  }
  bool overflow() const { return overflow_; }
  PlaneEncoder& take_any_value() {
    any_value_ = true;
    return *this;
  }

 private:
  // Row `r` of an exact input run as floats in row_.
  void load_row(const Piece& piece, uint32_t r) {
    const uint8_t* data = in_.bytes.data() + piece.in_offset +
                          (size_t{piece.first} + r) * width_ * dtype_bytes(in_.dtype);
    read_values(kernels_, data, in_.dtype, row_.data(), width_);
  }

  Status bad_value(const Piece& piece, uint32_t r, size_t channel, const std::string& what) const {
    return invalid_argument(where(in_) + "row " + std::to_string(position(piece, r)) + " head " +
                            std::to_string(channel / in_.dim) + ": " + what);
  }
  uint64_t position(const Piece& piece, uint32_t r) const {
    uint64_t row = in_.first_row;
    size_t offset = 0;
    for (const RowRun& run : in_.runs) {
      if (offset == piece.in_offset) break;
      row += run.rows;
      offset += run_bytes(in_, run.form, run.rows);
    }
    return row + piece.first + r;
  }

  // Rows that are of the raw dtype already: copied, if they don't lie there, and checked while they
  // are in the cache. False: some value isn't finite.
  bool copy_rows(const Piece& piece, uint8_t* out) const {
    constexpr size_t kAtOnce = 32u << 10;
    const size_t row_bytes = width_ * dtype_bytes(in_.dtype), bytes = piece.rows * row_bytes;
    const uint8_t* from = in_.bytes.data() + piece.in_offset + piece.first * row_bytes;
    for (size_t at = 0; at < bytes; at += kAtOnce) {
      const size_t some = std::min(kAtOnce, bytes - at);
      if (out != from) std::memcpy(out + at, from + at, some);
      const bool good =
          any_value_ || finite_values(out + at, some / dtype_bytes(in_.dtype), in_.dtype);
      if (!good) return false;
    }
    return true;
  }

  Status round_rows(const Piece& piece, uint8_t* out) {
    const float overflow = side_.raw_dtype == DType::f16    ? kHalfOverflow
                           : side_.raw_dtype == DType::bf16 ? kBf16Overflow
                                                            : INFINITY;
    const size_t row_bytes = width_ * dtype_bytes(side_.raw_dtype);
    out += piece.out_first * row_bytes;
    if (in_.dtype == side_.raw_dtype && copy_rows(piece, out)) return {};
    for (uint32_t r = 0; r < piece.rows; ++r, out += row_bytes) {
      load_row(piece, r);
      for (size_t i = 0; i < width_ && !any_value_; ++i) {
        if (std::fabs(row_[i]) < overflow) continue;
        return bad_value(piece, r, i,
                         std::isfinite(row_[i])
                             ? std::string("a value is too large for ") + to_string(side_.raw_dtype)
                             : "a value is not finite");
      }
      write_values(kernels_, row_.data(), width_, side_.raw_dtype, out);
    }
    return {};
  }

  void copy_codes(const Piece& piece, uint32_t out_rows, uint8_t* out) const {
    const size_t bytes = code_bytes(in_.dim, side_.bits), in_rows = piece.in_run_rows;
    const uint8_t* in = in_.bytes.data() + piece.in_offset;
    for (size_t h = 0; h < in_.heads; ++h) {
      std::memcpy(out + (h * out_rows + piece.out_first) * bytes, in + h * in_rows * bytes,
                  in_rows * bytes);
      std::memcpy(out + size_t{in_.heads} * out_rows * bytes + (h * out_rows + piece.out_first) * 2,
                  in + in_.heads * in_rows * bytes + h * in_rows * 2, in_rows * 2);
    }
  }

  Status code_rows(const Piece& piece, uint32_t out_rows, uint8_t* out) {
    const size_t bytes = code_bytes(in_.dim, side_.bits);
    uint8_t* scales = out + size_t{in_.heads} * out_rows * bytes;
    for (uint32_t r = 0; r < piece.rows; ++r) {
      load_row(piece, r);
      if (!side_.mean.empty()) {
        kernels_.center(row_.data(), side_.mean.data(), side_.gain.data(), width_);
      }
      for (size_t h = 0; h < in_.heads; ++h) {
        const size_t at = h * out_rows + piece.out_first + r;
        uint16_t scale = 0;
        VectorState state = kernels_.encode(row_.data() + h * in_.dim, in_.dim, side_.signs->data(),
                                            side_.bits, out + at * bytes, &scale);
        if (state == VectorState::not_finite) {
          return bad_value(piece, r, h * in_.dim, "a value is not finite");
        }
        if (state == VectorState::scale_overflow) overflow_ = true;
        std::memcpy(scales + 2 * at, &scale, 2);
      }
    }
    return {};
  }

  const Kernels& kernels_;
  const SideCoding& side_;
  const Plane& in_;
  const std::span<uint8_t> place_;
  const size_t width_;
  std::vector<float> row_;
  Plane out_;
  bool overflow_ = false;
  bool any_value_ = false;  // of exact rows
};

constexpr uint64_t kNever = UINT64_MAX;

// The plane of some rows of an exact run of `in`, without bytes of its own.
Plane exact_rows(const Plane& in, const uint8_t* data, uint32_t first, uint32_t rows) {
  Plane out = in;
  out.first_row = first;
  out.runs = {{RunForm::exact, rows}};
  out.bytes = Bytes(nullptr, data, run_bytes(in, RunForm::exact, rows));
  return out;
}

// A plane put together of runs and their bytes.
struct RunsOf {
  Plane out;
  std::vector<uint8_t> bytes;

  void add(RowRun run, std::span<const uint8_t> data) {
    const bool joins =
        run.form == RunForm::exact && !out.runs.empty() && out.runs.back().form == RunForm::exact;
    if (joins) {
      out.runs.back().rows += run.rows;
    } else {
      out.runs.push_back(run);
    }
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
};

std::vector<float> as_floats(const Kernels& kernels, const Plane& rows) {
  std::vector<float> out(rows.bytes.size() / dtype_bytes(rows.dtype));
  read_values(kernels, rows.bytes.data(), rows.dtype, out.data(), out.size());
  return out;
}

}  // namespace

// Rows from exact_tokens on as streams, one for each block that the plane has rows of.
// `keep_exact`: none; streams that came stay. Returns: resource_exhausted if rows are to be kept
// exact.
Result<Plane> Codec::encode_streams(const Plane& rows, const SideCoding& s, bool keep_exact) const {
  RunsOf made{PlaneEncoder::shape({}, s, rows), {}};
  const uint64_t row_bytes = run_bytes(rows, RunForm::exact, 1);
  const uint8_t* data = rows.bytes.data();
  uint32_t at = rows.first_row;
  for (const RowRun& run : rows.runs) {
    const uint64_t length = run_bytes(rows, run);
    if (run.form == RunForm::stream) made.add(run, {data, length});
    for (uint32_t done = 0; run.form == RunForm::exact && done < run.rows;) {
      const uint32_t first = at + done, block = profile_->block_tokens;
      const bool exact = keep_exact || first < profile_->exact_tokens;
      uint32_t end = exact && !keep_exact ? profile_->exact_tokens : (first / block + 1) * block;
      end = std::min(end, at + run.rows);
      const Plane some = exact_rows(rows, data + done * row_bytes, first, end - first);
      done += end - first;
      if (exact) {
        KV_ASSIGN_OR_RETURN(Plane rounded,
                            PlaneEncoder(*kernels_, s, some).run(lay_out(some, kNever)));
        made.add({RunForm::exact, end - first}, rounded.bytes.span());
        continue;
      }
      const size_t as_exact = size_t{end - first} * s.heads * s.dim * dtype_bytes(s.raw_dtype);
      const auto stream = s.coder->encode(as_floats(*kernels_, some), first);
      if (!stream || stream->size() >= as_exact) {
        return Status(StatusCode::resource_exhausted, "rows are to be kept exact");
      }
      made.add(
          {RunForm::stream, end - first, static_cast<uint32_t>(stream->size()), 0, end - first},
          *stream);
    }
    data += length;
    at += run.rows;
  }
  made.out.bytes = Bytes::owning(std::move(made.bytes));
  return std::move(made.out);
}

Result<Plane> Codec::encode(const Plane& rows, std::span<uint8_t> place) const {
  KV_RETURN_IF_ERROR(check_shape(rows));
  const SideCoding& s = *side(rows.layer, rows.part, rows.side);
  if (s.coder != nullptr) {
    Result<Plane> coded = encode_streams(rows, s, false);
    const bool exact = coded.status().code() == StatusCode::resource_exhausted;
    return exact ? encode_streams(rows, s, true) : std::move(coded);
  }
  if (s.bits != 0) {
    PlaneEncoder encoder(*kernels_, s, rows, place);
    Result<Plane> coded = encoder.run(lay_out(rows, profile_->exact_tokens));
    if (!coded.ok() || !encoder.overflow()) return coded;
  }
  return PlaneEncoder(*kernels_, s, rows, place).run(lay_out(rows, kNever));
}

Result<uint64_t> Codec::encoded_bytes(const Plane& rows) const {
  KV_RETURN_IF_ERROR(check_shape(rows));
  const SideCoding& s = *side(rows.layer, rows.part, rows.side);
  if (s.coder != nullptr) return unsupported(where(rows) + "streams tell their bytes when made");
  Layout layout = lay_out(rows, s.bits != 0 ? profile_->exact_tokens : kNever);
  return plane_bytes(PlaneEncoder::shape(layout, s, rows));
}

Result<Plane> Codec::raw(const Plane& rows) const {
  KV_RETURN_IF_ERROR(check_shape(rows));
  if (has_coded_runs(rows)) {
    return invalid_argument(where(rows) + "code runs can't be made exact");
  }
  return PlaneEncoder(*kernels_, *side(rows.layer, rows.part, rows.side), rows)
      .run(lay_out(rows, kNever));
}

Result<Plane> Codec::raw_of_any(const Plane& rows) const {
  KV_RETURN_IF_ERROR(check_shape(rows));
  if (has_coded_runs(rows)) {
    return invalid_argument(where(rows) + "code runs can't be made exact");
  }
  return PlaneEncoder(*kernels_, *side(rows.layer, rows.part, rows.side), rows)
      .take_any_value()
      .run(lay_out(rows, kNever));
}

}  // namespace kv
