// Sums over the parts' demands. See end_price.h.
#include "proto/end_price.h"

#include <algorithm>

#include "proto/demand.h"
#include "proto/plane.h"

namespace kv {
namespace {

bool beside_blocks(const PartSpec& spec) { return !spec.rows_in_block(); }

// What an engine keeps of the groups before and of the open one: at block ends of the former only.
uint64_t carry_bytes(const PartSpec& spec, uint64_t row_bytes) {
  return spec.overlap ? 2 * uint64_t{spec.rate} * row_bytes : 0;
}

}  // namespace

DType raw_dtype(const PartSpec& part, const Profile& profile) {
  bool codable = part.v_dim > 0 && part.kind != PartKind::latent && part.kind != PartKind::pooled;
  return codable ? profile.raw_dtype : part.dtype;
}

uint64_t coded_rows_bytes(const Profile& profile, const PartCoding& coding, const SideSpec& side,
                          DType raw, uint64_t rows) {
  const uint8_t word = coding.word(side.side);
  if (word == 0 || rows == 0) return 0;
  if (word != kTransformWord) return rows * side.heads * (code_bytes(side.dim, word) + 2);
  constexpr uint64_t kLeastRowBytes = 4, kStreamBytes = 4 + 32 * 4;  // codec/TRANSFORM.md, "Stream"
  const double row = profile.transforms->row_bytes[coding.transform(side.side)] * 9 / 8;
  const uint64_t exact = rows * side.heads * side.dim * dtype_bytes(raw);
  return std::min(exact, rows * (static_cast<uint64_t>(row) + kLeastRowBytes) + kStreamBytes);
}

uint64_t stored_rows_bytes(const Profile& profile, const PartCoding& coding, const SideSpec& side,
                           DType raw, uint32_t exact_tokens, uint32_t first, uint32_t end) {
  const bool coded = coding.word(side.side) != 0;
  const uint64_t exact = coded ? std::min(end, std::max(first, exact_tokens)) - first : end - first;
  const uint64_t values = uint64_t{side.heads} * side.dim;
  return exact * values * dtype_bytes(raw) +
         coded_rows_bytes(profile, coding, side, raw, end - first - exact);
}

EndPrice::EndPrice(const ModelSpec& model, const Profile& profile) : block_(profile.block_tokens) {
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& spec = model.layers[l].parts[p];
      if (!spec.has_rows()) continue;
      const PartCoding& coding = profile.coding(l, p);
      Part part{&spec, 0};
      for (const SideSpec& side : sides_of(spec)) {
        part.row_bytes +=
            stored_rows_bytes(profile, coding, side, raw_dtype(spec, profile), 0, 0, block_) /
            block_;
      }
      parts_.push_back(part);
    }
  }
}

uint64_t EndPrice::entry(uint32_t n) const {
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    for (const RowRange& rows : demanded_rows(*part.spec, n)) {
      bytes += (rows.end - rows.first) * part.row_bytes;
    }
    if (demands_carry(*part.spec, n)) bytes += carry_bytes(*part.spec, part.row_bytes);
  }
  return bytes;
}

// An end adds the rows since the end before it, of a window or chunk no more than that has.
uint64_t EndPrice::ends(uint32_t n, uint32_t interval) const {
  const uint64_t step = uint64_t{interval} * block_;
  const uint64_t count = step > 0 && step < n ? (n - 1) / step : 0;
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    const PartSpec& spec = *part.spec;
    if (spec.kind == PartKind::pooled) bytes += count * carry_bytes(spec, part.row_bytes);
    if (!beside_blocks(spec)) continue;
    uint64_t own = 0;
    for (const RowRange& rows : demanded_rows(spec, n)) own += rows.end - rows.first;
    const bool chunk = spec.kind == PartKind::chunk;
    uint64_t most = chunk ? spec.chunk - 1 : spec.window - 1;
    if (chunk && step % spec.chunk == 0) most = 0;
    bytes += std::min<uint64_t>(count * std::min(most, step), n - own) * part.row_bytes;
  }
  return bytes;
}

uint32_t EndPrice::interval(uint32_t n) const {
  const bool any = std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return beside_blocks(*part.spec) || part.spec->overlap;
  });
  if (!any) return 0;
  const uint64_t most = entry(n);
  for (uint32_t interval = 1; uint64_t{interval} * block_ < n; interval *= 2) {
    if (ends(n, interval) <= most) return interval;
  }
  return 0;
}

}  // namespace kv
