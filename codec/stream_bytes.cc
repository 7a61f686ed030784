// Sums over runs, and the bounds of what is judged. See stream_bytes.h.
#include "codec/stream_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kv {
namespace {

constexpr uint64_t kJudgedTokens = 2048;  // single texts of one kind lie some 5 % apart
// Prose under transforms of code and the reverse take 5 to 13 % more: a kind of text, not a misfit.
constexpr double kCostly = 1.25;
// Bits of a value. Under a Gaussian's table, values of half the spread take .54 fewer (none at all:
// .72), and an error that is the same counts four times as much.
constexpr double kCoarseBits = 0.5;
constexpr uint64_t kWords = 4, kLane = 4, kLanes = 32;  // of a stream's head: TRANSFORM.md

uint64_t stream_head(uint64_t rows) { return kWords + kLane * std::min(rows, kLanes); }

}  // namespace

StreamBytes& StreamBytes::operator+=(const StreamBytes& more) {
  taken += more.taken;
  promised += more.promised;
  f16 += more.f16;
  return *this;
}

StreamBytes stream_bytes(const Plane& plane, const Profile& profile) {
  StreamBytes out;
  if (plane.layer >= profile.parts.size()) return out;
  if (plane.part >= profile.parts[plane.layer].size()) return out;
  const PartCoding& coding = profile.coding(plane.layer, plane.part);
  if (coding.word(plane.side) != kTransformWord) return out;
  const double row_bytes = profile.transforms->row_bytes[coding.transform(plane.side)];
  uint64_t row = plane.first_row;
  for (const RowRun& run : plane.runs) {
    const uint64_t end = row + run.rows;
    const uint64_t rows = end - std::min(end, std::max<uint64_t>(row, profile.exact_tokens));
    row = end;
    if (rows == 0) continue;
    const bool stream = run.form == RunForm::stream;
    // Rows that were cut from a stream share its bytes.
    const uint64_t all = stream ? std::max<uint64_t>(run.of, rows) : rows;
    const double promised = row_bytes * static_cast<double>(rows) +
                            static_cast<double>(stream_head(all) * rows) / static_cast<double>(all);
    out.taken += stream ? uint64_t{run.bytes} * rows / all : run_bytes(plane, run.form, rows);
    out.promised += static_cast<uint64_t>(std::llround(promised));
    out.f16 += rows * plane.heads * plane.dim * dtype_bytes(DType::f16);
  }
  return out;
}

uint64_t streamed_token_bytes(const ModelSpec& model, const Profile& profile) {
  uint64_t bytes = 0;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      for (const SideSpec& side : sides_of(model.layers[l].parts[p])) {
        if (profile.coding(l, p).word(side.side) != kTransformWord) continue;
        bytes += uint64_t{side.heads} * side.dim * dtype_bytes(DType::f16);
      }
    }
  }
  return bytes;
}

Fit fit_of(const StreamBytes& bytes, uint64_t token_bytes) {
  if (bytes.promised == 0 || bytes.f16 < kJudgedTokens * token_bytes) return Fit::unknown;
  const double values = static_cast<double>(bytes.f16) / dtype_bytes(DType::f16);
  const double saved = static_cast<double>(bytes.promised) - static_cast<double>(bytes.taken);
  const double of_promise = static_cast<double>(bytes.taken) / static_cast<double>(bytes.promised);
  if (of_promise > kCostly) return Fit::costly;
  return 8 * saved > kCoarseBits * values ? Fit::coarse : Fit::good;
}

std::string fit_words(Fit fit, const StreamBytes& bytes) {
  if (fit != Fit::costly && fit != Fit::coarse) return {};
  const auto whole = static_cast<double>(bytes.f16);
  char text[96];
  std::snprintf(text, sizeof(text), "its rows take %.3f of fp16 where the profile promises %.3f: ",
                static_cast<double>(bytes.taken) / whole,
                static_cast<double>(bytes.promised) / whole);
  return text + std::string(fit == Fit::costly
                                ? "the transforms do not fit them; tune anew with your texts"
                                : "they vary less than those that it was tuned to, and the steps "
                                  "are too coarse for them; tune anew with your texts");
}

}  // namespace kv
