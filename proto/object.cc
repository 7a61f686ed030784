// Validation and header encoding of Object. Encoding: FORMAT.md, "Object header".
#include <algorithm>

#include "proto/plane.h"

namespace kv {
namespace {

std::string where(const Plane& p) {
  return "layer " + std::to_string(p.layer) + " part " + std::to_string(p.part) + " side " +
         to_string(p.side) + ": ";
}

Status mismatch(const std::string& at, const char* field, uint64_t expected, uint64_t given) {
  return invalid_argument(at + field + ": expected " + std::to_string(expected) + ", given " +
                          std::to_string(given));
}

// The part's side that this plane claims to be, or nullopt.
std::optional<SideSpec> find_side(const PartSpec& part, Side side) {
  for (const auto& s : sides_of(part)) {
    if (s.side == side) return s;
  }
  return std::nullopt;
}

Status validate_shape(const Plane& p, const PartSpec& part, const Profile& profile) {
  auto side = find_side(part, p.side);
  if (!side)
    return invalid_argument(where(p) + "a " + to_string(part.kind) + " part has no such side");
  if (p.heads != side->heads) return mismatch(where(p), "heads", side->heads, p.heads);
  if (p.dim != side->dim) return mismatch(where(p), "dim", side->dim, p.dim);
  bool codable = part.v_dim > 0 && part.kind != PartKind::latent && part.kind != PartKind::pooled;
  DType dtype = codable ? profile.raw_dtype : part.dtype;
  if (p.dtype != dtype) {
    return invalid_argument(where(p) + "dtype: expected " + to_string(dtype) + ", given " +
                            to_string(p.dtype));
  }
  if (p.runs.size() > kMaxRunsPerPlane) {
    return mismatch(where(p), "runs at most", kMaxRunsPerPlane, p.runs.size());
  }
  return {};
}

Status validate_runs(const Plane& p, const Object& o, const Profile& profile) {
  const PartCoding& coding = profile.coding(p.layer, p.part);
  uint8_t bits = p.side == Side::k ? coding.k_bits : p.side == Side::v ? coding.v_bits : 0;
  uint32_t row = p.first_row;
  bool seen_exact = false;
  for (const RowRun& run : p.runs) {
    if (run.rows == 0) return invalid_argument(where(p) + "a run of 0 rows");
    if (run.form == RunForm::codes) {
      if (bits == 0 || p.bits != bits) return mismatch(where(p), "bits", bits, p.bits);
      if (row < profile.exact_tokens) {
        return mismatch(where(p), "first coded row at least", profile.exact_tokens, row);
      }
      if (o.name.kind == ObjectKind::tail && seen_exact && row > profile.exact_tokens) {
        return invalid_argument(where(p) + "a tail's codes may only stand at its start");
      }
    } else {
      seen_exact = true;
    }
    row += run.rows;
  }
  uint64_t expected = plane_bytes(p);
  if (p.bytes.size() != expected) return mismatch(where(p), "bytes", expected, p.bytes.size());
  return {};
}

// Rows that a part's plane must have inside a block or tail over tokens [a, b).
std::pair<uint32_t, uint32_t> rows_of(const PartSpec& part, uint32_t a, uint32_t b) {
  if (part.kind == PartKind::pooled) return {a / part.rate, b / part.rate};
  return {a, b};
}

Status validate_coverage(const Object& o, const ModelSpec& model) {
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t i = 0; i < model.layers[l].parts.size(); ++i) {
      const PartSpec& part = model.layers[l].parts[i];
      if (!part.has_rows() || !part.rows_in_block()) continue;
      auto [a, b] = rows_of(part, o.first_token, o.end_token());
      if (a == b) continue;
      for (const auto& side : sides_of(part)) {
        auto same = [&](const Plane& p) {
          return p.layer == l && p.part == i && p.side == side.side;
        };
        auto it = std::find_if(o.planes.begin(), o.planes.end(), same);
        auto again = it == o.planes.end() ? it : std::find_if(it + 1, o.planes.end(), same);
        std::string at = "layer " + std::to_string(l) + " part " + std::to_string(i) + " side " +
                         to_string(side.side) + ": ";
        std::string need = "expected rows [" + std::to_string(a) + ", " + std::to_string(b) + ")";
        if (it == o.planes.end()) return invalid_argument(at + need + ", given no plane");
        if (again != o.planes.end()) return invalid_argument(at + need + " once, given two planes");
        if (it->first_row != a || it->end_row() != b) {
          return invalid_argument(at + need + ", given [" + std::to_string(it->first_row) + ", " +
                                  std::to_string(it->end_row()) + ")");
        }
      }
    }
  }
  return {};
}

Status validate_kind(const Object& o, const Profile& profile) {
  uint64_t n = o.tokens.size();
  uint64_t block = profile.block_tokens;
  switch (o.name.kind) {
    case ObjectKind::block:
    case ObjectKind::supplement:
      if (n == 0 || n > block) return mismatch("", "tokens of a block", block, n);
      if (o.name.kind == ObjectKind::block && n != block) {
        return mismatch("", "tokens of a block", block, n);
      }
      break;
    case ObjectKind::tail:
    case ObjectKind::snapshot:
      if (n >= block || (n == 0 && o.name.kind == ObjectKind::tail)) {
        return mismatch("", "tokens of a tail or snapshot below", block, n);
      }
      break;
  }
  if (o.first_token % block != 0) {
    return invalid_argument("first_token " + std::to_string(o.first_token) +
                            " is no multiple of block_tokens " + std::to_string(block));
  }
  for (const auto& e : o.extras) {
    if (e.position < o.first_token || e.position >= o.end_token()) {
      return invalid_argument("extra at position " + std::to_string(e.position) +
                              " outside its object");
    }
  }
  return {};
}

void encode_planes(const Object& o, ByteWriter& out) {
  out.u32(static_cast<uint32_t>(o.planes.size()));
  for (const auto& p : o.planes) {
    out.u16(p.layer);
    out.u16(p.part);
    out.u8(static_cast<uint8_t>(p.side));
    out.u8(static_cast<uint8_t>(p.dtype));
    out.u8(p.bits);
    out.u8(0);
    out.u32(p.heads);
    out.u32(p.dim);
    out.u32(p.first_row);
    out.u32(static_cast<uint32_t>(p.runs.size()));
    for (const auto& run : p.runs) {
      out.u8(static_cast<uint8_t>(run.form));
      out.u32(run.rows);
    }
  }
  out.u32(static_cast<uint32_t>(o.states.size()));
  for (const auto& s : o.states) {
    out.u16(s.layer);
    out.u16(s.part);
    out.u64(s.bytes.size());
  }
}

Plane decode_plane(ByteReader& in) {
  Plane p;
  p.layer = in.u16();
  p.part = in.u16();
  uint8_t side = in.u8(), dtype = in.u8();
  p.bits = in.u8();
  uint8_t zero = in.u8();
  p.heads = in.u32();
  p.dim = in.u32();
  p.first_row = in.u32();
  uint32_t runs = in.u32();
  bool bits_ok = p.bits == 0 || p.bits == 2 || p.bits == 3 || p.bits == 4 || p.bits == 8;
  if (side > 2 || dtype < 1 || dtype > 3 || !bits_ok || zero != 0 || p.heads == 0 ||
      p.heads > kMaxHeads || p.dim == 0 || p.dim > kMaxDim || runs > kMaxRunsPerPlane) {
    in.fail();
  }
  p.side = static_cast<Side>(side);
  p.dtype = static_cast<DType>(dtype);
  uint64_t rows = p.first_row;
  for (uint32_t r = 0; r < runs && !in.failed(); ++r) {
    uint8_t form = in.u8();
    uint32_t count = in.u32();
    rows += count;
    if (form > 1 || count == 0 || rows > kMaxTokens || (form == 1 && p.bits == 0)) in.fail();
    p.runs.push_back({static_cast<RunForm>(form), count});
  }
  return p;
}

}  // namespace

Status validate(const Object& o, const ModelSpec& model, const Profile& profile) {
  KV_RETURN_IF_ERROR(validate_kind(o, profile));
  for (const auto& p : o.planes) {
    if (p.layer >= model.layers.size() || p.part >= model.layers[p.layer].parts.size()) {
      return invalid_argument(where(p) + "the model has no such part");
    }
    KV_RETURN_IF_ERROR(validate_shape(p, model.layers[p.layer].parts[p.part], profile));
    KV_RETURN_IF_ERROR(validate_runs(p, o, profile));
  }
  for (const auto& s : o.states) {
    if (s.layer >= model.layers.size() || s.part >= model.layers[s.layer].parts.size()) {
      return invalid_argument("state of layer " + std::to_string(s.layer) + " part " +
                              std::to_string(s.part) + ": the model has no such part");
    }
  }
  bool rows_complete = o.name.kind == ObjectKind::block || o.name.kind == ObjectKind::tail;
  return rows_complete ? validate_coverage(o, model) : Status();
}

void encode_header(const Object& o, ByteWriter& out) {
  out.u8(static_cast<uint8_t>(o.name.kind));
  out.raw(o.name.id.bytes);
  out.u16(o.name.group);
  out.u32(o.name.first_row);
  out.u32(o.name.end_row);
  out.raw(o.parent.bytes);
  out.raw(o.profile.bytes);
  out.string(o.ns);
  out.raw(o.fingerprint.bytes);
  out.u32(o.first_token);
  out.array(std::span<const Token>(o.tokens));
  out.u32(static_cast<uint32_t>(o.extras.size()));
  for (const auto& e : o.extras) {
    out.u32(e.position);
    out.blob(e.bytes);
  }
  encode_planes(o, out);
}

Result<Object> decode_header(ByteReader& in) {
  Object o;
  auto read_id = [&in](Id& id) {
    auto b = in.raw(32);
    if (!in.failed()) std::copy(b.begin(), b.end(), id.bytes.begin());
  };
  uint8_t kind = in.u8();
  if (kind < 1 || kind > 4) in.fail();
  o.name.kind = static_cast<ObjectKind>(kind);
  read_id(o.name.id);
  o.name.group = in.u16();
  o.name.first_row = in.u32();
  o.name.end_row = in.u32();
  read_id(o.parent);
  read_id(o.profile);
  o.ns = in.string(kMaxNamespaceBytes);
  read_id(o.fingerprint);
  o.first_token = in.u32();
  o.tokens = in.array<Token>(kMaxBlockTokens);
  if (o.first_token > kMaxTokens) in.fail();
  uint32_t extras = in.u32();
  if (extras > kMaxExtras) in.fail();
  for (uint32_t i = 0; i < extras && !in.failed(); ++i) {
    uint32_t position = in.u32();
    auto b = in.blob(kMaxExtraBytes);
    o.extras.push_back({position, {b.begin(), b.end()}});
  }
  uint32_t planes = in.u32();
  if (planes > kMaxPlanesPerObject) in.fail();
  uint64_t payload = 0;  // capped as it grows: at most 2^50 are added at a time
  for (uint32_t i = 0; i < planes && !in.failed(); ++i) {
    o.planes.push_back(decode_plane(in));
    payload += in.failed() ? 0 : plane_bytes(o.planes.back());
    if (payload > kMaxObjectBytes) in.fail();
  }
  uint32_t states = in.u32();
  if (states > kMaxPlanesPerObject) in.fail();
  for (uint32_t i = 0; i < states && !in.failed(); ++i) {
    StateBlob s;
    s.layer = in.u16();
    s.part = in.u16();
    uint64_t bytes = in.u64();
    if (bytes > kMaxStateBytes || bytes > kMaxObjectBytes - payload) in.fail();
    payload += in.failed() ? 0 : bytes;
    // The size is remembered as an unowned length; attach_payload replaces it before any access.
    s.bytes = Bytes(nullptr, nullptr, in.failed() ? 0 : bytes);
    o.states.push_back(std::move(s));
  }
  if (in.failed()) return corruption("object header: truncated or a field out of range");
  return o;
}

uint64_t expected_payload_bytes(const Object& o) {
  uint64_t bytes = 0;
  for (const auto& p : o.planes) bytes += plane_bytes(p);
  for (const auto& s : o.states) bytes += s.bytes.size();
  return bytes;
}

Status attach_payload(Object& o, const Bytes& payload) {
  uint64_t at = 0;
  auto take = [&](uint64_t size) -> Result<Bytes> {
    if (size > payload.size() - at) {
      return corruption("object payload: expected more than " + std::to_string(payload.size()) +
                        " bytes");
    }
    Bytes out = payload.slice(at, size);
    at += size;
    return out;
  };
  for (auto& p : o.planes) {
    KV_ASSIGN_OR_RETURN(p.bytes, take(plane_bytes(p)));
  }
  for (auto& s : o.states) {
    KV_ASSIGN_OR_RETURN(s.bytes, take(s.bytes.size()));
  }
  if (at != payload.size()) {
    return corruption("object payload: expected " + std::to_string(at) + " bytes, given " +
                      std::to_string(payload.size()));
  }
  return {};
}

}  // namespace kv
