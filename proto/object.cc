// Validation and header encoding of Object. Encoding: FORMAT.md, "Object header".
#include <algorithm>

#include "proto/fields.h"
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
  const uint8_t word = profile.coding(p.layer, p.part).word(p.side);
  const uint8_t bits = word == kTransformWord ? 0 : word;
  uint32_t row = p.first_row;
  bool seen_exact = false;
  for (const RowRun& run : p.runs) {
    if (run.rows == 0) return invalid_argument(where(p) + "a run of 0 rows");
    if (run.form == RunForm::stream && word != kTransformWord) {
      return invalid_argument(where(p) + "a stream, where the profile names no transform");
    }
    if (run.form == RunForm::codes && (bits == 0 || p.bits != bits)) {
      return mismatch(where(p), "bits", bits, p.bits);
    }
    if (run.form != RunForm::exact) {
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

// Fields of a stream's run at row `at`: the stream begins at a row that there is.
template <typename Io>
void stream_fields(Io& io, Of<Io, RowRun>& run, uint64_t at) {
  io.number("bytes", run.bytes, 1, kMaxObjectBytes);
  io.number("skip", run.skip, 0, std::min<uint64_t>(at, kMaxStreamRows));
  io.number("of", run.of, 1, kMaxStreamRows);
  io.check("of", uint64_t{run.skip} + run.rows <= run.of, run.of, "expected at least skip + rows");
}

template <typename Io>
void plane_fields(Io& io, Of<Io, Plane>& p) {
  uint8_t zero = 0;
  io.number("layer", p.layer);
  io.number("part", p.part);
  io.choice("side", p.side, Side::k, Side::other);
  io.choice("dtype", p.dtype, DType::f32, DType::bf16);
  io.number("bits", p.bits);
  io.check("bits", valid_bits(p.bits), p.bits, kValidBits);
  io.number("zero", zero, 0, 0);
  io.number("heads", p.heads, 1, kMaxHeads);
  io.number("dim", p.dim, 1, kMaxDim);
  io.number("first_row", p.first_row);
  uint64_t rows = p.first_row;
  io.list("runs", p.runs, kMaxRunsPerPlane, [&](Io& item, auto& run) {
    item.choice("form", run.form, RunForm::exact, RunForm::stream);
    item.check("form", run.form != RunForm::codes || p.bits != 0, 1,
               "expected 0 or 2 in a plane of bits 0");
    item.number("rows", run.rows, 1, kMaxTokens);
    if (run.form == RunForm::stream) stream_fields(item, run, rows);
    rows += run.rows;
    static_assert(kMaxTokens == 4'194'304);
    item.check("rows", rows <= kMaxTokens, rows, "expected their end at most at row 4194304");
  });
}

// A state's bytes follow the header: here only their count is read, as an unowned length, which
// attach_payload replaces before any access.
void state_size(FieldWriter& io, const StateBlob& s, uint64_t) {
  io.number("bytes", uint64_t{s.bytes.size()});
}
void state_size(FieldReader& io, StateBlob& s, uint64_t most) {
  uint64_t bytes = 0;
  io.number("bytes", bytes, 0, std::min(kMaxStateBytes, most));
  s.bytes = Bytes(nullptr, nullptr, io.failed() ? 0 : bytes);
}

// Fields of the payload, at most kMaxObjectBytes: the sum is capped as it grows, by 2^50 bytes at
// a time.
template <typename Io>
void payload_fields(Io& io, Of<Io, Object>& o) {
  uint64_t payload = 0;
  auto add = [&payload](Io& item, uint64_t bytes) {
    payload += bytes;
    static_assert(kMaxObjectBytes == 1u << 30);
    item.check("bytes", payload <= kMaxObjectBytes, payload, "expected at most 1 GiB of payload");
  };
  io.list("planes", o.planes, kMaxPlanesPerObject, [&](Io& item, auto& plane) {
    plane_fields(item, plane);
    if (Io::kReads && !item.failed()) add(item, plane_bytes(plane));
  });
  io.list("states", o.states, kMaxPlanesPerObject, [&](Io& item, auto& state) {
    item.number("layer", state.layer);
    item.number("part", state.part);
    state_size(item, state, kMaxObjectBytes - payload);
    if (Io::kReads) add(item, state.bytes.size());
  });
}

template <typename Io>
void header_fields(Io& io, Of<Io, Object>& o) {
  io.choice("kind", o.name.kind, ObjectKind::block, ObjectKind::snapshot);
  io.id("id", o.name.id);
  io.number("group", o.name.group);
  io.number("first_row", o.name.first_row);
  io.number("end_row", o.name.end_row);
  io.id("parent", o.parent);
  io.id("profile", o.profile);
  io.text("namespace", o.ns, kMaxNamespaceBytes);
  io.id("fingerprint", o.fingerprint);
  io.number("first_token", o.first_token, 0, kMaxTokens);
  io.array("tokens", o.tokens, kMaxBlockTokens);
  io.list("extras", o.extras, kMaxExtras, [](Io& item, auto& e) {
    item.number("position", e.position);
    item.array("bytes", e.bytes, kMaxExtraBytes);
  });
  payload_fields(io, o);
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
  bool rows_complete = is_main(o.name.kind);
  return rows_complete ? validate_coverage(o, model) : Status();
}

void encode_header(const Object& o, ByteWriter& out) {
  FieldWriter io(out);
  header_fields(io, o);
}

Result<Object> decode_header(ByteReader& in) {
  Object o;
  FieldReader io(in);
  header_fields(io, o);
  if (in.failed()) return corruption("object header: " + in.why());
  return o;
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
