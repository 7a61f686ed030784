// Ids as SHA-256 over tagged, length-prefixed fields. FORMAT.md, "Ids".
#include "proto/identity.h"

namespace kv {
namespace {

constexpr uint8_t kFormatVersion = 1;
constexpr size_t kUsualBytes = 256;  // all fields but namespace, tokens and extras

// Writes a field: tag, u64 length, bytes.
void field(ByteWriter& out, char tag, std::span<const uint8_t> bytes) {
  out.u8(static_cast<uint8_t>(tag));
  out.u64(bytes.size());
  out.raw(bytes);
}

std::span<const uint8_t> as_bytes(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

void field_tokens(ByteWriter& out, std::span<const Token> tokens) {
  field(out, 't', {reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
}

void field_extras(ByteWriter& out, std::span<const Extra> extras) {
  ByteWriter list;
  for (const auto& e : extras) {
    list.u32(e.position);
    list.blob(e.bytes);
  }
  field(out, 'x', list.span());
}

Id hash_sequence(const Realm& realm, std::string_view kind, const Id& parent,
                 std::span<const Token> tokens, std::span<const Extra> extras) {
  ByteWriter out;
  out.bytes().reserve(kUsualBytes + realm.ns.size() + tokens.size_bytes());
  uint8_t version[1] = {kFormatVersion};
  field(out, 'v', version);
  field(out, 'n', as_bytes(realm.ns));
  field(out, 'm', realm.fingerprint.bytes);
  field(out, 'p', realm.profile.bytes);
  field(out, 'b', parent.bytes);
  field_extras(out, extras);
  field(out, 'k', as_bytes(kind));
  field_tokens(out, tokens);
  return sha256(out.span());
}

}  // namespace

Id block_id(const Realm& realm, const Id& parent, std::span<const Token> tokens,
            std::span<const Extra> extras, ObjectKind block_or_tail) {
  KV_CHECK(block_or_tail == ObjectKind::block || block_or_tail == ObjectKind::tail);
  return hash_sequence(realm, to_string(block_or_tail), parent, tokens, extras);
}

Id snapshot_id(const Realm& realm, const Id& parent, std::span<const Token> tokens,
               std::span<const Extra> extras) {
  return hash_sequence(realm, "snapshot", parent, tokens, extras);
}

Id model_id(std::string_view ns, const Id& fingerprint) {
  ByteWriter out;
  uint8_t version[1] = {kFormatVersion};
  field(out, 'v', version);
  field(out, 'n', as_bytes(ns));
  field(out, 'm', fingerprint.bytes);
  field(out, 'k', as_bytes("model"));
  return sha256(out.span());
}

void stamp(Object& o, const Realm& realm) {
  o.ns = realm.ns;
  o.fingerprint = realm.fingerprint;
  o.profile = realm.profile;
  if (o.name.kind == ObjectKind::snapshot) {
    o.name.id = snapshot_id(realm, o.parent, o.tokens, o.extras);
  } else {
    ObjectKind kind = o.name.kind == ObjectKind::tail ? ObjectKind::tail : ObjectKind::block;
    o.name.id = block_id(realm, o.parent, o.tokens, o.extras, kind);
  }
}

bool id_matches(const Object& o) {
  Realm realm{o.ns, o.fingerprint, o.profile};
  if (o.name.kind == ObjectKind::snapshot) {
    return o.name.id == snapshot_id(realm, o.parent, o.tokens, o.extras);
  }
  if (o.name.kind == ObjectKind::supplement) {
    // A supplement may belong to a block or to a tail: its id names which.
    return o.name.id == block_id(realm, o.parent, o.tokens, o.extras, ObjectKind::block) ||
           o.name.id == block_id(realm, o.parent, o.tokens, o.extras, ObjectKind::tail);
  }
  return o.name.id == block_id(realm, o.parent, o.tokens, o.extras, o.name.kind);
}

}  // namespace kv
