// The table of demand.h, in code.
#include "proto/demand.h"

#include <algorithm>

namespace kv {

std::vector<RowRange> demanded_rows(const PartSpec& part, uint32_t n) {
  std::vector<RowRange> out;
  auto add = [&out](uint32_t first, uint32_t end) {
    if (first < end) out.push_back({first, end});
  };
  switch (part.kind) {
    case PartKind::full:
    case PartKind::latent:
      add(0, n);
      break;
    case PartKind::window: {
      const uint32_t sinks = std::min(part.keep, n);
      const uint32_t from = n + 1 > part.window ? n + 1 - part.window : 0;
      if (from <= sinks) {
        add(0, std::max(sinks, n > from ? n : 0));
      } else {
        add(0, sinks);
        add(from, n);
      }
      break;
    }
    case PartKind::chunk:
      add(n - n % part.chunk, n);
      break;
    case PartKind::pooled:
      add(0, n / part.rate);
      break;
    case PartKind::state:
    case PartKind::opaque:
      break;
  }
  return out;
}

uint64_t fp16_rows_bytes(const ModelSpec& model, uint32_t n) {
  uint64_t bytes = 0;
  for (const auto& layer : model.layers) {
    for (const auto& part : layer.parts) {
      uint64_t row = 0, rows = 0;
      for (const auto& side : sides_of(part)) row += uint64_t{side.heads} * side.dim * 2;
      for (const RowRange& range : demanded_rows(part, n)) rows += range.end - range.first;
      bytes += row * rows;
    }
  }
  return bytes;
}

bool demands_carry(const PartSpec& part, uint32_t n) {
  return part.kind == PartKind::pooled && (n % part.rate != 0 || (part.overlap && n >= part.rate));
}

bool demands_snapshot(const PartSpec& part, uint32_t n) { return !part.has_rows() && n > 0; }

}  // namespace kv
