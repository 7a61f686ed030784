// Validation, encoding and part groups of ModelSpec. Encoding: FORMAT.md, "Model".
#include "proto/model.h"

#include <map>
#include <tuple>

#include "proto/fields.h"

namespace kv {
namespace {

std::string at(size_t layer, size_t part) {
  return "layer " + std::to_string(layer) + " part " + std::to_string(part) + ": ";
}

Status validate_rows(const PartSpec& p, const std::string& where) {
  if (p.heads == 0 || p.heads > kMaxHeads) {
    return invalid_argument(where + "heads " + std::to_string(p.heads) + " outside 1.." +
                            std::to_string(kMaxHeads));
  }
  if (p.k_dim == 0 || p.k_dim > kMaxDim || p.v_dim > kMaxDim) {
    return invalid_argument(where + "k_dim " + std::to_string(p.k_dim) + " or v_dim " +
                            std::to_string(p.v_dim) + " outside 1.." + std::to_string(kMaxDim));
  }
  return {};
}

Status validate_part(const PartSpec& p, const std::string& where, uint32_t block_tokens) {
  if (p.has_rows()) KV_RETURN_IF_ERROR(validate_rows(p, where));
  if (p.kind == PartKind::window && p.window == 0) {
    return invalid_argument(where + "window 0, expected at least 1");
  }
  if (p.kind == PartKind::chunk && p.chunk == 0) {
    return invalid_argument(where + "chunk 0, expected at least 1");
  }
  if (p.kind == PartKind::pooled && (p.rate == 0 || block_tokens % p.rate != 0)) {
    return unsupported(where + "pooled rate " + std::to_string(p.rate) +
                       " does not divide block_tokens " + std::to_string(block_tokens));
  }
  if (p.label.size() > kMaxLabelBytes) return invalid_argument(where + "label over its limit");
  return {};
}

template <typename Io>
void fields(Io& io, Of<Io, ModelSpec>& m) {
  io.text("name", m.name, kMaxModelNameBytes);
  io.id("fingerprint", m.fingerprint);
  io.list("layers", m.layers, kMaxLayers, [](Io& layer, auto& l) {
    layer.list("parts", l.parts, kMaxPartsPerLayer, [](Io& part, auto& p) {
      part.choice("kind", p.kind, PartKind::full, PartKind::opaque);
      part.choice("dtype", p.dtype, DType::f32, DType::bf16);
      part.boolean("overlap", p.overlap);
      part.choice("snapshot", p.snapshot, SnapshotPlace{0}, SnapshotPlace{1});
      part.number("heads", p.heads);
      part.number("k_dim", p.k_dim);
      part.number("v_dim", p.v_dim);
      part.number("window", p.window);
      part.number("keep", p.keep);
      part.number("chunk", p.chunk);
      part.number("rate", p.rate);
      part.text("label", p.label, kMaxLabelBytes);
    });
  });
}

// All fields: two parts are one group if none differs.
auto all_of(const PartSpec& p) {
  return std::tie(p.kind, p.dtype, p.heads, p.k_dim, p.v_dim, p.window, p.keep, p.chunk, p.rate,
                  p.overlap, p.snapshot, p.label);
}

// Some total order of specs, so that equal parts are found without a search of all groups.
struct BySpec {
  bool operator()(const PartSpec* a, const PartSpec* b) const { return all_of(*a) < all_of(*b); }
};

}  // namespace

uint32_t dtype_bytes(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

const char* to_string(PartKind kind) {
  switch (kind) {
    case PartKind::full:
      return "full";
    case PartKind::window:
      return "window";
    case PartKind::chunk:
      return "chunk";
    case PartKind::latent:
      return "latent";
    case PartKind::pooled:
      return "pooled";
    case PartKind::state:
      return "state";
    case PartKind::opaque:
      return "opaque";
  }
  return "unknown";
}

const char* to_string(Side side) {
  switch (side) {
    case Side::k:
      return "K";
    case Side::v:
      return "V";
    case Side::other:
      return "other";
  }
  return "unknown";
}

std::vector<SideSpec> sides_of(const PartSpec& part) {
  if (!part.has_rows()) return {};
  if (part.v_dim == 0) return {{Side::other, part.heads, part.k_dim}};
  return {{Side::k, part.heads, part.k_dim}, {Side::v, part.heads, part.v_dim}};
}

Status validate(const ModelSpec& model, uint32_t block_tokens) {
  if (model.name.size() > kMaxModelNameBytes) {
    return invalid_argument("model name over " + std::to_string(kMaxModelNameBytes) + " bytes");
  }
  if (model.fingerprint.is_zero()) return invalid_argument("model fingerprint is all zero");
  if (model.layers.empty() || model.layers.size() > kMaxLayers) {
    return invalid_argument("layers " + std::to_string(model.layers.size()) + " outside 1.." +
                            std::to_string(kMaxLayers));
  }
  bool any = false;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const auto& parts = model.layers[l].parts;
    if (parts.size() > kMaxPartsPerLayer) {
      return invalid_argument("layer " + std::to_string(l) + ": more than " +
                              std::to_string(kMaxPartsPerLayer) + " parts");
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      KV_RETURN_IF_ERROR(validate_part(parts[p], at(l, p), block_tokens));
      any = true;
    }
  }
  if (!any) return invalid_argument("model has no parts: nothing to store");
  return {};
}

void encode(const ModelSpec& model, ByteWriter& out) {
  FieldWriter io(out);
  fields(io, model);
}

Result<ModelSpec> decode_model(ByteReader& in) {
  ModelSpec model;
  FieldReader io(in);
  fields(io, model);
  if (in.failed()) return corruption("model: " + in.why());
  return model;
}

std::vector<PartGroup> part_groups(const ModelSpec& model) {
  std::vector<PartGroup> groups;
  std::map<const PartSpec*, size_t, BySpec> group_of;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const auto& parts = model.layers[l].parts;
    for (size_t p = 0; p < parts.size(); ++p) {
      auto [group, is_new] = group_of.try_emplace(&parts[p], groups.size());
      if (is_new) groups.push_back({parts[p], {}});
      groups[group->second].members.push_back({static_cast<uint16_t>(l), static_cast<uint16_t>(p)});
    }
  }
  return groups;
}

uint64_t fp16_bytes_per_token(const ModelSpec& model) {
  uint64_t bytes = 0;
  for (const auto& layer : model.layers) {
    for (const auto& part : layer.parts) {
      uint64_t row = 0;
      for (const auto& side : sides_of(part)) row += uint64_t{side.heads} * side.dim * 2;
      bytes += part.kind == PartKind::pooled && part.rate > 0 ? row / part.rate : row;
    }
  }
  return bytes;
}

}  // namespace kv
