// The fields of all messages but those with a payload (message_object.cc). PROTOCOL.md, "Messages".
#include "proto/message.h"

#include <algorithm>

#include "proto/fields.h"

namespace kv {
namespace {

// ------------------------------------------------------------ fields that several messages have

template <typename Io>
void query_fields(Io& io, Of<Io, Query>& q) {
  io.array("tokens", q.tokens, kMaxTokens);
  io.list("extras", q.extras, kMaxExtras, [](Io& item, auto& e) {
    item.number("position", e.position);
    item.array("bytes", e.bytes, kMaxExtraBytes);
  });
}

// The model, and the profile under which it is asked.
template <typename Io, typename M>
void question_fields(Io& io, M& m) {
  io.number("model", m.model);
  io.id("profile", m.profile);
}

template <typename Io>
void selection_fields(Io& io, Of<Io, Selection>& s) {
  io.number("from_token", s.from_token);
  io.number("first_layer", s.layers.first);
  io.number("end_layer", s.layers.end);
  io.number("first_part", s.parts.first);
  io.number("end_part", s.parts.end);
  io.number("first_head", s.heads.first);
  io.number("end_head", s.heads.end);
}

template <typename Io>
void parts_field(Io& io, Of<Io, std::vector<CodingReport>>& parts) {
  io.list("parts", parts, kMaxLayers * kMaxPartsPerLayer, [](Io& item, auto& p) {
    item.number("layer", p.layer);
    item.number("part", p.part);
    item.choice("kind", p.kind, PartKind::full, PartKind::opaque);
    item.number("requested_k_bits", p.requested_k_bits);
    item.number("requested_v_bits", p.requested_v_bits);
    item.number("active_k_bits", p.active_k_bits);
    item.number("active_v_bits", p.active_v_bits);
    item.clipped("reason", p.reason, kMaxMessageBytes);
  });
}

template <typename Io>
void names_field(Io& io, const char* name, Of<Io, std::vector<ObjectName>>& names) {
  io.list(name, names, kMaxNames, [](Io& item, auto& n) {
    item.choice("kind", n.kind, ObjectKind::block, ObjectKind::snapshot);
    item.id("id", n.id);
    item.number("group", n.group);
    item.number("first_row", n.first_row);
    item.number("end_row", n.end_row);
  });
}

// A u32 of the field's own unit; longer ones are written as the longest.
template <typename Duration>
void time_field(FieldWriter& io, Duration time) {
  io.out().u32(static_cast<uint32_t>(std::clamp<int64_t>(time.count(), 0, UINT32_MAX)));
}
template <typename Duration>
void time_field(FieldReader& io, Duration& time) {
  uint32_t given = 0;
  io.number("time", given);
  time = Duration(given);
}

// A query about an open model, and for how long.
template <typename Io, typename M>
void timed_query_fields(Io& io, M& m) {
  question_fields(io, m);
  time_field(io, m.time);
  query_fields(io, m.query);
}

// Models and profiles stand in a message as blobs: their bytes' count, then they.
void model_field(FieldWriter& io, const ModelSpec& model) {
  ByteWriter blob;
  encode(model, blob);
  io.out().blob(blob.span());
}

// A profile may be the most of a message: it is encoded in its place.
void profile_field(FieldWriter& io, const std::shared_ptr<const Profile>& profile) {
  ByteWriter& out = io.out();
  const uint64_t bytes = encoded_bytes(*profile);
  out.bytes().reserve(out.size() + sizeof(uint32_t) + bytes);
  out.u32(static_cast<uint32_t>(bytes));
  encode(*profile, out);
}

template <typename T, typename Decode>
void blob_field(FieldReader& io, const char* name, T& value, size_t max_bytes,
                const Decode& decode_blob) {
  ByteReader blob(io.in().blob(max_bytes));
  if (!io.failed()) {
    auto read = decode_blob(blob);
    if (!read.ok())
      io.in().fail(read.status().message());
    else if (!blob.done())
      io.in().fail(std::to_string(blob.left()) + " bytes after its last field");
    else
      value = std::move(*read);
  }
  io.named(name);
}

void model_field(FieldReader& io, ModelSpec& model) {
  blob_field(io, "model", model, kMaxOpenBytes, decode_model);
}

void profile_field(FieldReader& io, std::shared_ptr<const Profile>& profile) {
  Profile read;
  blob_field(io, "profile", read, kMaxProfileBytes, decode_profile);
  if (!io.failed()) profile = std::make_shared<const Profile>(std::move(read));
}

// ------------------------------------------------------------------ messages, as in PROTOCOL.md

template <typename Io>
void fields(Io& io, Of<Io, HelloRequest>& m) {
  io.number("min_version", m.min_version);
  io.number("max_version", m.max_version);
  io.number("features", m.features);
  io.text("namespace", m.ns, kMaxNamespaceBytes);
  io.clipped("program", m.program, kMaxProgramBytes);
  io.text("token", m.token, kMaxTokenBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, HelloReply>& m) {
  io.number("version", m.version);
  io.number("features", m.features);
  io.raw("boot", m.boot);
  io.number("max_in_flight", m.max_in_flight);
  io.number("max_put_bytes", m.max_put_bytes);
  io.text("namespace", m.ns, kMaxNamespaceBytes);
  io.clipped("program", m.program, kMaxProgramBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, ErrorReply>& m) {
  io.choice("code", m.code, StatusCode::not_found, StatusCode::cancelled);
  io.clipped("message", m.message, kMaxMessageBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, OpenRequest>& m) {
  bool has_profile = m.profile != nullptr;
  io.boolean("replace", m.replace);
  io.choice("prefill", m.prefill, PrefillMode::exact, PrefillMode::coded);
  io.boolean("has_profile", has_profile);
  model_field(io, m.model);
  if (has_profile) profile_field(io, m.profile);
}

template <typename Io>
void fields(Io& io, Of<Io, OpenReply>& m) {
  io.number("model", m.model);
  io.text("namespace", m.realm.ns, kMaxNamespaceBytes);
  io.id("fingerprint", m.realm.fingerprint);
  io.id("profile id", m.realm.profile);
  profile_field(io, m.profile);
  parts_field(io, m.parts);
}

template <typename Io>
void fields(Io& io, Of<Io, QueryRequest>& m) {
  question_fields(io, m);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, EraseRequest>& m) {
  io.number("model", m.model);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, PrefetchRequest>& m) {
  question_fields(io, m);
  io.boolean("wait", m.wait);
  io.number("hold", m.hold);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, LookupReply>& m) {
  io.number("tokens", m.tokens);
  io.number("common", m.common);
  io.choice("tier", m.tier, Tier::none, Tier::remote);
  io.choice("form", m.form, HitForm::none, HitForm::coded);
  io.clipped("reason", m.reason, kMaxMessageBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, DemoteRequest>& m) {
  question_fields(io, m);
  io.number("hold", m.hold);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, DemoteReply>& m) {
  io.choice("outcome", m.outcome, Outcome::accepted, Outcome::missing);
  io.number("tokens", m.tokens);
  io.clipped("reason", m.reason, kMaxMessageBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, RetainRequest>& m) {
  timed_query_fields(io, m);
}

template <typename Io>
void fields(Io& io, Of<Io, RetainReply>& m) {
  io.choice("outcome", m.outcome, Outcome::accepted, Outcome::missing);
  io.number("number", m.number);
  time_field(io, m.time);
  io.number("tokens", m.tokens);
  io.clipped("reason", m.reason, kMaxMessageBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, ExpireRequest>& m) {
  question_fields(io, m);
  io.boolean("whole", m.whole);
  time_field(io, m.time);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, ExpireReply>& m) {
  io.choice("outcome", m.outcome, Outcome::accepted, Outcome::missing);
  io.number("objects", m.objects);
  io.clipped("reason", m.reason, kMaxMessageBytes);
}

template <typename Io>
void fields(Io& io, Of<Io, HoldRequest>& m) {
  timed_query_fields(io, m);
}

template <typename Io>
void fields(Io& io, Of<Io, HoldReply>& m) {
  io.number("number", m.number);
  time_field(io, m.time);
  fields(io, m.found);
}

template <typename Io>
void fields(Io& io, Of<Io, RenewRequest>& m) {
  io.number("hold", m.hold);
  time_field(io, m.time);
}

template <typename Io>
void fields(Io& io, Of<Io, RenewReply>& m) {
  time_field(io, m.time);
}

template <typename Io>
void fields(Io& io, Of<Io, ReleaseRequest>& m) {
  io.number("hold", m.hold);
}

template <typename Io>
void fields(Io& io, Of<Io, Cancel>& m) {
  io.number("request", m.request);
}

template <typename Io>
void fields(Io& io, Of<Io, ReserveRequest>& m) {
  question_fields(io, m);
  io.array("ends", m.ends, kMaxNamedEnds);
  io.number("prefill_ms", m.words.prefill_ms);
  io.text("label", m.words.label, kMaxLabelBytes);
  query_fields(io, m.query);
}

template <typename Io>
void fields(Io& io, Of<Io, ReserveReply>& m) {
  io.number("reservation", m.reservation);
  io.list("needs", m.needs, kMaxNeeds, [](Io& item, auto& n) {
    item.choice("kind", n.kind, ObjectKind::block, ObjectKind::snapshot);
    item.boolean("required", n.required);
    item.number("group", n.group);
    item.number("block_index", n.block_index);
    item.number("first_row", n.first_row);
    item.number("end_row", n.end_row);
  });
}

template <typename Io>
void fields(Io& io, Of<Io, CommitRequest>& m) {
  io.number("reservation", m.reservation);
  io.choice("wait_for", m.wait_for, Durability::none, Durability::durable);
}

template <typename Io>
void fields(Io& io, Of<Io, CommitReply>& m) {
  io.choice("level", m.level, Durability::none, Durability::durable);
  names_field(io, "foreign", m.foreign);
  names_field(io, "lost", m.lost);
  io.list("ends", m.ends, kMaxNamedEnds, [](Io& item, auto& e) {
    item.number("tokens", e.tokens);
    item.boolean("restorable", e.restorable);
    item.clipped("reason", e.reason, kMaxMessageBytes);
  });
}

template <typename Io>
void fields(Io& io, Of<Io, AbortRequest>& m) {
  io.number("reservation", m.reservation);
}

template <typename Io>
void fields(Io& io, Of<Io, FetchCall>& m) {
  question_fields(io, m.request);
  io.choice("form", m.request.form, FetchForm::stored, FetchForm::bf16);
  io.boolean("wait", m.request.wait);
  io.boolean("round_to_block", m.request.round_to_block);
  io.number("max_tokens", m.request.max_tokens);
  io.number("max_reply_bytes", m.max_reply_bytes);
  selection_fields(io, m.request.selection);
  io.number("hold", m.request.hold);
  query_fields(io, m.request.query);
}

template <typename Io>
void fields(Io& io, Of<Io, FetchHeader>& m) {
  io.number("tokens", m.tokens);
  io.number("common", m.common);
  io.boolean("pending", m.pending);
  io.choice("tier", m.tier, Tier::none, Tier::remote);
  io.choice("form", m.form, HitForm::none, HitForm::coded);
  io.clipped("reason", m.reason, kMaxMessageBytes);
  io.number("objects", m.objects, 0, kMaxFetchObjects);
  io.number("object_bytes", m.object_bytes);
}

template <typename Io>
void fields(Io& io, Of<Io, FetchDone>& m) {
  io.number("objects", m.objects);
}

template <typename Io>
void fields(Io& io, Of<Io, EraseCount>& m) {
  io.number("objects", m.objects);
}

template <typename Io>
void fields(Io& io, Of<Io, StatsReply>& m) {
  io.list("values", m.values, kMaxStatValues, [](Io& item, auto& v) {
    item.clipped("name", v.first, kMaxStatNameBytes);
    item.number("value", v.second);
  });
  io.list("models", m.models, kMaxStatValues, [](Io& item, auto& v) {
    item.clipped("name", v.first, kMaxModelNameBytes);
    parts_field(item, v.second);
  });
}

}  // namespace

KV_MESSAGE(HelloRequest)
KV_MESSAGE(HelloReply)
KV_MESSAGE(ErrorReply)
KV_MESSAGE(OpenRequest)
KV_MESSAGE(OpenReply)
KV_MESSAGE(QueryRequest)
KV_MESSAGE(EraseRequest)
KV_MESSAGE(PrefetchRequest)
KV_MESSAGE(DemoteRequest)
KV_MESSAGE(DemoteReply)
KV_MESSAGE(RetainRequest)
KV_MESSAGE(RetainReply)
KV_MESSAGE(ExpireRequest)
KV_MESSAGE(ExpireReply)
KV_MESSAGE(HoldRequest)
KV_MESSAGE(HoldReply)
KV_MESSAGE(RenewRequest)
KV_MESSAGE(RenewReply)
KV_MESSAGE(ReleaseRequest)
KV_MESSAGE(Cancel)
KV_MESSAGE(LookupReply)
KV_MESSAGE(ReserveRequest)
KV_MESSAGE(ReserveReply)
KV_MESSAGE(CommitRequest)
KV_MESSAGE(CommitReply)
KV_MESSAGE(AbortRequest)
KV_MESSAGE(FetchCall)
KV_MESSAGE(FetchHeader)
KV_MESSAGE(FetchDone)
KV_MESSAGE(EraseCount)
KV_MESSAGE(StatsReply)

Status check_type(const Frame& frame, FrameType expected) {
  if (frame.header.type == expected) return {};
  return corruption(std::string("a ") + to_string(frame.header.type) + " frame, expected " +
                    to_string(expected));
}

Status bad_body(FrameType type, const ByteReader& in) {
  std::string why =
      in.failed() ? in.why() : std::to_string(in.left()) + " bytes after the last field";
  return corruption(std::string(to_string(type)) + ": " + why);
}

}  // namespace kv
