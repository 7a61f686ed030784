// Names of objects that are put: checked against the reservation, and filled in.
#include "cachesvc/core/put_names.h"

#include <algorithm>

namespace kv {
namespace {

Status wrong(const std::string& what, uint64_t expected, uint64_t given) {
  return invalid_argument(what + ": expected " + std::to_string(expected) + ", given " +
                          std::to_string(given));
}

// Checks the owner fields of a header: zeros and empty names leave them to the service.
Status check_header(const Object& o, const Realm& realm, const Id& parent) {
  auto differs = [](const char* field, const std::string& expected, const std::string& given) {
    return invalid_argument(std::string("object's ") + field + ": expected " + expected +
                            " or nothing, given " + given);
  };
  if (!o.ns.empty() && o.ns != realm.ns) return differs("namespace", realm.ns, o.ns);
  struct {
    const char* field;
    const Id &expected, &given;
  } ids[] = {{"fingerprint", realm.fingerprint, o.fingerprint},
             {"profile", realm.profile, o.profile},
             {"parent", parent, o.parent}};
  for (const auto& id : ids) {
    bool same = id.given.is_zero() || id.given == id.expected;
    if (!same) return differs(id.field, id.expected.hex(), id.given.hex());
  }
  return {};
}

Status set_tokens(Object& o, const Query& query, uint32_t first, uint32_t end) {
  auto tokens = tokens_between(query, first, end);
  auto extras = extras_in(query.extras, first, end);
  if (!o.tokens.empty() &&
      !std::equal(o.tokens.begin(), o.tokens.end(), tokens.begin(), tokens.end())) {
    return invalid_argument(std::string(to_string(o.name.kind)) + " at token " +
                            std::to_string(first) + ": its tokens are not the reservation's");
  }
  if (!o.extras.empty() &&
      !std::equal(o.extras.begin(), o.extras.end(), extras.begin(), extras.end())) {
    return invalid_argument(std::string(to_string(o.name.kind)) + " at token " +
                            std::to_string(first) + ": its extras are not the reservation's");
  }
  o.tokens.assign(tokens.begin(), tokens.end());
  o.extras.assign(extras.begin(), extras.end());
  return {};
}

Status identify_supplement(const Reservation& r, Object& o) {
  if (o.name.group >= r.realm->groups.size()) {
    return wrong("supplement: group below", r.realm->groups.size(), o.name.group);
  }
  const PartSpec& spec = r.realm->groups[o.name.group].spec;
  bool rows = spec.has_rows() && !spec.rows_in_block();
  if (o.name.first_row == 0 && o.name.end_row == 0 && !o.planes.empty()) {
    o.name.first_row = o.planes[0].first_row;
    o.name.end_row = o.planes[0].end_row();
  }
  uint32_t a = o.name.first_row, b = o.name.end_row;
  bool carry = !rows && (spec.kind == PartKind::pooled ||
                         (!spec.has_rows() && spec.snapshot == SnapshotPlace::block_end));
  if (!rows && !carry) {
    return invalid_argument(std::string("a ") + to_string(spec.kind) +
                            " part's rows belong in the block, its state in a snapshot");
  }
  bool inside = rows ? a < b && a >= o.first_token : a == b && a > o.first_token;
  if (!inside || b > o.end_token()) {
    PartGroup::Member first = r.realm->groups[o.name.group].members[0];
    std::string at = "layer " + std::to_string(first.layer) + " part " +
                     std::to_string(first.part) + " (" + to_string(spec.kind) + "): ";
    at += rows ? "expected rows inside tokens [" : "expected one position inside (";
    return invalid_argument(at + std::to_string(o.first_token) + ", " +
                            std::to_string(o.end_token()) + (rows ? ")" : "]") + ", given rows [" +
                            std::to_string(a) + ", " + std::to_string(b) + ")");
  }
  return {};
}

Status identify_snapshot(const Reservation& r, Object& o) {
  uint32_t block = r.realm->block_tokens();
  uint32_t at = o.tokens.empty() && o.name.end_row > 0 ? o.name.end_row : o.end_token();
  if (at == 0 || at > r.query.tokens.size()) {
    return wrong("snapshot: position at most", r.query.tokens.size(), at);
  }
  uint32_t index = at / block;
  o.first_token = index * block;
  KV_RETURN_IF_ERROR(set_tokens(o, r.query, o.first_token, at));
  const Id parent = index == 0 ? Id{} : r.blocks[index - 1], given = o.name.id;
  KV_RETURN_IF_ERROR(check_header(o, r.realm->realm, parent));
  o.parent = parent;
  o.name = {ObjectKind::snapshot, {}, 0, 0, 0};
  stamp(o, r.realm->realm);
  if (!given.is_zero() && given != o.name.id) {
    return invalid_argument("snapshot at token " + std::to_string(at) +
                            ": its id is not the reservation's");
  }
  return {};
}

}  // namespace

Status identify(const Reservation& r, Object& o) {
  uint32_t block = r.realm->block_tokens();
  const uint32_t n = r.tokens();
  if (o.name.kind == ObjectKind::snapshot) return identify_snapshot(r, o);
  if (o.first_token % block != 0 || o.first_token >= n) {
    return invalid_argument("first_token " + std::to_string(o.first_token) +
                            ": no block of this reservation begins there");
  }
  uint32_t index = o.first_token / block;
  bool complete = index < r.blocks.size();
  if (o.name.kind != ObjectKind::supplement && (o.name.kind == ObjectKind::block) != complete) {
    return invalid_argument("tokens from " + std::to_string(o.first_token) + " are a " +
                            (complete ? "block" : "tail") + ", given as a " +
                            to_string(o.name.kind));
  }
  uint32_t end = complete ? o.first_token + block : n;
  KV_RETURN_IF_ERROR(set_tokens(o, r.query, o.first_token, end));
  const Id parent = index == 0 ? Id{} : r.blocks[index - 1];
  KV_RETURN_IF_ERROR(check_header(o, r.realm->realm, parent));
  o.parent = parent;
  ObjectName name = o.name;
  stamp(o, r.realm->realm);  // a supplement gets its block's id below
  o.name = name;
  const Id& id = r.id_of(index);
  if (!name.id.is_zero() && name.id != id) {
    return invalid_argument("object at token " + std::to_string(o.first_token) +
                            ": its id is not the reservation's");
  }
  o.name.id = id;
  if (name.kind == ObjectKind::supplement) return identify_supplement(r, o);
  o.name = {name.kind, id, 0, 0, 0};
  return {};
}

void cut_rows(const Reservation& r, Object& o) {
  uint32_t a = o.name.first_row, b = o.name.end_row;
  const NodeId* node = r.realm->node_of.find(o.name.id);
  bool rows = o.name.kind == ObjectKind::supplement && a < b;
  if (!rows || !node) return;
  for (const Record* other : r.realm->nodes.at(*node).attached.supplements()) {
    if (other->name.group != o.name.group) continue;
    if (!other->usable(kUnreadableIsMissing))
      continue;  // unreadable: its rows may be asked for again
    uint32_t c = other->name.first_row, d = other->name.end_row;
    if (c <= a && d >= b) {
      o.name = other->name;
      return;
    }
    if (c <= a && d > a) a = d;
    if (c < b && d >= b) b = c;
  }
  o.name.first_row = a;
  o.name.end_row = b;
}

}  // namespace kv
