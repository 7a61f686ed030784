// Encoding of all messages but those with a payload (message_object.cc). PROTOCOL.md, "Messages".
#include "proto/message.h"

#include <algorithm>

namespace kv {
namespace {

void put_id(const Id& id, ByteWriter& out) { out.raw(id.bytes); }

void get_id(ByteReader& in, Id& id) {
  auto b = in.raw(id.bytes.size());
  if (!in.failed()) std::copy(b.begin(), b.end(), id.bytes.begin());
}

// A u8 enumerator 0 … last.
template <typename E>
E get_enum(ByteReader& in, E last) {
  uint8_t v = in.u8();
  if (v > static_cast<uint8_t>(last)) in.fail();
  return in.failed() ? E{} : static_cast<E>(v);
}

bool get_bool(ByteReader& in) {
  uint8_t v = in.u8();
  if (v > 1) in.fail();
  return v == 1;
}

uint32_t get_count(ByteReader& in, uint32_t max) {
  uint32_t n = in.u32();
  if (n > max) in.fail();
  return in.failed() ? 0 : n;
}

// Cut at a limit: texts for people never make a frame that the peer refuses.
std::string_view clip(const std::string& s, size_t max) {
  return std::string_view(s).substr(0, max);
}

void put_query(const Query& q, ByteWriter& out) {
  out.array(std::span<const Token>(q.tokens));
  out.u32(static_cast<uint32_t>(q.extras.size()));
  for (const auto& e : q.extras) {
    out.u32(e.position);
    out.blob(e.bytes);
  }
}

void get_query(ByteReader& in, Query& q) {
  q.tokens = in.array<Token>(kMaxTokens);
  uint32_t extras = get_count(in, kMaxExtras);
  for (uint32_t i = 0; i < extras && !in.failed(); ++i) {
    Extra e;
    e.position = in.u32();
    auto b = in.blob(kMaxExtraBytes);
    e.bytes.assign(b.begin(), b.end());
    q.extras.push_back(std::move(e));
  }
}

void put_parts(const std::vector<CodingReport>& parts, ByteWriter& out) {
  out.u32(static_cast<uint32_t>(parts.size()));
  for (const auto& p : parts) {
    out.u16(p.layer);
    out.u16(p.part);
    out.u8(static_cast<uint8_t>(p.kind));
    out.u8(p.requested_k_bits);
    out.u8(p.requested_v_bits);
    out.u8(p.active_k_bits);
    out.u8(p.active_v_bits);
    out.string(clip(p.reason, kMaxMessageBytes));
  }
}

void get_parts(ByteReader& in, std::vector<CodingReport>& parts) {
  uint32_t n = get_count(in, kMaxLayers * kMaxPartsPerLayer);
  for (uint32_t i = 0; i < n && !in.failed(); ++i) {
    CodingReport p;
    p.layer = in.u16();
    p.part = in.u16();
    uint8_t kind = in.u8();
    if (kind < 1 || kind > static_cast<uint8_t>(PartKind::opaque)) in.fail();
    p.kind = static_cast<PartKind>(kind);
    p.requested_k_bits = in.u8();
    p.requested_v_bits = in.u8();
    p.active_k_bits = in.u8();
    p.active_v_bits = in.u8();
    p.reason = in.string(kMaxMessageBytes);
    parts.push_back(std::move(p));
  }
}

void put_names(const std::vector<ObjectName>& names, ByteWriter& out) {
  out.u32(static_cast<uint32_t>(names.size()));
  for (const auto& n : names) {
    out.u8(static_cast<uint8_t>(n.kind));
    put_id(n.id, out);
    out.u16(n.group);
    out.u32(n.first_row);
    out.u32(n.end_row);
  }
}

void get_names(ByteReader& in, std::vector<ObjectName>& names) {
  uint32_t count = get_count(in, kMaxNames);
  for (uint32_t i = 0; i < count && !in.failed(); ++i) {
    ObjectName n;
    uint8_t kind = in.u8();
    if (kind < 1 || kind > static_cast<uint8_t>(ObjectKind::snapshot)) in.fail();
    n.kind = static_cast<ObjectKind>(kind);
    get_id(in, n.id);
    n.group = in.u16();
    n.first_row = in.u32();
    n.end_row = in.u32();
    names.push_back(n);
  }
}

void put_blob_of(const ModelSpec& model, ByteWriter& out) {
  ByteWriter blob;
  encode(model, blob);
  out.blob(blob.span());
}

// It may be the most of a message: encoded in its place.
void put_blob_of(const Profile& profile, ByteWriter& out) {
  const uint64_t bytes = encoded_bytes(profile);
  out.bytes().reserve(out.size() + sizeof(uint32_t) + bytes);
  out.u32(static_cast<uint32_t>(bytes));
  encode(profile, out);
}

// A length-prefixed profile; null where it can't be read.
std::shared_ptr<const Profile> get_profile(ByteReader& in) {
  ByteReader blob(in.blob(kMaxProfileBytes));
  if (in.failed()) return nullptr;
  auto profile = decode_profile(blob);
  if (!profile.ok() || !blob.done()) {
    in.fail();
    return nullptr;
  }
  return std::make_shared<const Profile>(std::move(*profile));
}

}  // namespace

void encode(const HelloRequest& m, ByteWriter& out) {
  out.u16(m.min_version);
  out.u16(m.max_version);
  out.u32(m.features);
  out.string(m.ns);
  out.string(clip(m.program, kMaxProgramBytes));
}
void decode(ByteReader& in, HelloRequest& m) {
  m.min_version = in.u16();
  m.max_version = in.u16();
  m.features = in.u32();
  m.ns = in.string(kMaxNamespaceBytes);
  m.program = in.string(kMaxProgramBytes);
}

void encode(const HelloReply& m, ByteWriter& out) {
  out.u16(m.version);
  out.u32(m.features);
  out.u32(m.max_in_flight);
  out.u64(m.max_put_bytes);
  out.string(m.ns);
  out.string(clip(m.program, kMaxProgramBytes));
}
void decode(ByteReader& in, HelloReply& m) {
  m.version = in.u16();
  m.features = in.u32();
  m.max_in_flight = in.u32();
  m.max_put_bytes = in.u64();
  m.ns = in.string(kMaxNamespaceBytes);
  m.program = in.string(kMaxProgramBytes);
}

void encode(const ErrorReply& m, ByteWriter& out) {
  out.u8(static_cast<uint8_t>(m.code));
  out.string(clip(m.message, kMaxMessageBytes));
}
void decode(ByteReader& in, ErrorReply& m) {
  m.code = get_enum(in, StatusCode::unavailable);
  if (m.code == StatusCode::ok) in.fail();
  m.message = in.string(kMaxMessageBytes);
}

void encode(const OpenRequest& m, ByteWriter& out) {
  out.u8(m.replace ? 1 : 0);
  out.u8(static_cast<uint8_t>(m.prefill));
  out.u8(m.profile ? 1 : 0);
  put_blob_of(m.model, out);
  if (m.profile) put_blob_of(*m.profile, out);
}
void decode(ByteReader& in, OpenRequest& m) {
  m.replace = get_bool(in);
  m.prefill = get_enum(in, PrefillMode::coded);
  bool has_profile = get_bool(in);
  ByteReader blob(in.blob(kMaxOpenBytes));
  auto model = decode_model(blob);
  if (!model.ok() || !blob.done()) return in.fail();
  m.model = std::move(*model);
  if (has_profile) m.profile = get_profile(in);
}

void encode(const OpenReply& m, ByteWriter& out) {
  out.u32(m.model);
  out.string(m.realm.ns);
  put_id(m.realm.fingerprint, out);
  put_id(m.realm.profile, out);
  put_blob_of(*m.profile, out);
  put_parts(m.parts, out);
}
void decode(ByteReader& in, OpenReply& m) {
  m.model = in.u32();
  m.realm.ns = in.string(kMaxNamespaceBytes);
  get_id(in, m.realm.fingerprint);
  get_id(in, m.realm.profile);
  m.profile = get_profile(in);
  get_parts(in, m.parts);
}

void encode(const QueryRequest& m, ByteWriter& out) {
  out.u32(m.model);
  put_query(m.query, out);
}
void decode(ByteReader& in, QueryRequest& m) {
  m.model = in.u32();
  get_query(in, m.query);
}

void encode(const LookupReply& m, ByteWriter& out) {
  out.u32(m.tokens);
  out.u32(m.common);
  out.u8(static_cast<uint8_t>(m.tier));
  out.u8(static_cast<uint8_t>(m.form));
  out.string(clip(m.reason, kMaxMessageBytes));
}
void decode(ByteReader& in, LookupReply& m) {
  m.tokens = in.u32();
  m.common = in.u32();
  m.tier = get_enum(in, Tier::mixed);
  m.form = get_enum(in, HitForm::coded);
  m.reason = in.string(kMaxMessageBytes);
}

void encode(const ReserveRequest& m, ByteWriter& out) {
  out.u32(m.model);
  put_id(m.profile, out);
  put_query(m.query, out);
}
void decode(ByteReader& in, ReserveRequest& m) {
  m.model = in.u32();
  get_id(in, m.profile);
  get_query(in, m.query);
}

void encode(const ReserveReply& m, ByteWriter& out) {
  out.u64(m.reservation);
  out.u32(static_cast<uint32_t>(m.needs.size()));
  for (const auto& n : m.needs) {
    out.u8(static_cast<uint8_t>(n.kind));
    out.u8(n.required ? 1 : 0);
    out.u16(n.group);
    out.u32(n.block_index);
    out.u32(n.first_row);
    out.u32(n.end_row);
  }
}
void decode(ByteReader& in, ReserveReply& m) {
  m.reservation = in.u64();
  uint32_t count = get_count(in, kMaxNeeds);
  for (uint32_t i = 0; i < count && !in.failed(); ++i) {
    Need n;
    uint8_t kind = in.u8();
    if (kind < 1 || kind > static_cast<uint8_t>(ObjectKind::snapshot)) in.fail();
    n.kind = static_cast<ObjectKind>(kind);
    n.required = get_bool(in);
    n.group = in.u16();
    n.block_index = in.u32();
    n.first_row = in.u32();
    n.end_row = in.u32();
    m.needs.push_back(n);
  }
}

void encode(const CommitRequest& m, ByteWriter& out) {
  out.u64(m.reservation);
  out.u8(static_cast<uint8_t>(m.wait_for));
}
void decode(ByteReader& in, CommitRequest& m) {
  m.reservation = in.u64();
  m.wait_for = get_enum(in, Durability::durable);
}

void encode(const CommitReply& m, ByteWriter& out) {
  out.u8(static_cast<uint8_t>(m.level));
  put_names(m.foreign, out);
  put_names(m.lost, out);
}
void decode(ByteReader& in, CommitReply& m) {
  m.level = get_enum(in, Durability::durable);
  get_names(in, m.foreign);
  get_names(in, m.lost);
}

void encode(const AbortRequest& m, ByteWriter& out) { out.u64(m.reservation); }
void decode(ByteReader& in, AbortRequest& m) { m.reservation = in.u64(); }

void encode(const FetchCall& m, ByteWriter& out) {
  out.u32(m.request.model);
  out.u8(static_cast<uint8_t>(m.request.form));
  out.u8(m.request.wait ? 1 : 0);
  out.u8(m.request.round_to_block ? 1 : 0);
  out.u32(m.request.max_tokens);
  out.u64(m.max_reply_bytes);
  put_query(m.request.query, out);
}
void decode(ByteReader& in, FetchCall& m) {
  m.request.model = in.u32();
  m.request.form = get_enum(in, FetchForm::bf16);
  m.request.wait = get_bool(in);
  m.request.round_to_block = get_bool(in);
  m.request.max_tokens = in.u32();
  m.max_reply_bytes = in.u64();
  get_query(in, m.request.query);
}

void encode(const FetchHeader& m, ByteWriter& out) {
  out.u32(m.tokens);
  out.u32(m.common);
  out.u8(m.pending ? 1 : 0);
  out.u8(static_cast<uint8_t>(m.tier));
  out.u8(static_cast<uint8_t>(m.form));
  out.string(clip(m.reason, kMaxMessageBytes));
  out.u32(m.objects);
  out.u64(m.object_bytes);
}
void decode(ByteReader& in, FetchHeader& m) {
  m.tokens = in.u32();
  m.common = in.u32();
  m.pending = get_bool(in);
  m.tier = get_enum(in, Tier::mixed);
  m.form = get_enum(in, HitForm::coded);
  m.reason = in.string(kMaxMessageBytes);
  m.objects = get_count(in, kMaxFetchObjects);
  m.object_bytes = in.u64();
}

void encode(const FetchDone& m, ByteWriter& out) { out.u32(m.objects); }
void decode(ByteReader& in, FetchDone& m) { m.objects = in.u32(); }

void encode(const EraseCount& m, ByteWriter& out) { out.u64(m.objects); }
void decode(ByteReader& in, EraseCount& m) { m.objects = in.u64(); }

void encode(const StatsReply& m, ByteWriter& out) {
  out.u32(static_cast<uint32_t>(m.values.size()));
  for (const auto& [name, value] : m.values) {
    out.string(clip(name, kMaxStatNameBytes));
    out.u64(value);
  }
  out.u32(static_cast<uint32_t>(m.models.size()));
  for (const auto& [name, parts] : m.models) {
    out.string(clip(name, kMaxModelNameBytes));
    put_parts(parts, out);
  }
}
void decode(ByteReader& in, StatsReply& m) {
  uint32_t values = get_count(in, kMaxStatValues);
  for (uint32_t i = 0; i < values && !in.failed(); ++i) {
    std::string name = in.string(kMaxStatNameBytes);
    m.values.emplace_back(std::move(name), in.u64());
  }
  uint32_t models = get_count(in, kMaxStatValues);
  for (uint32_t i = 0; i < models && !in.failed(); ++i) {
    m.models.emplace_back(in.string(kMaxModelNameBytes), std::vector<CodingReport>{});
    get_parts(in, m.models.back().second);
  }
}

Status bad_body(FrameType type) {
  return corruption(std::string(to_string(type)) +
                    ": body truncated, too long, or a field out of range");
}

}  // namespace kv
