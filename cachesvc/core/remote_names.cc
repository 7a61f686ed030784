// Tags by depth, ids by tokens.
#include "cachesvc/core/remote_names.h"

#include "cachesvc/core/needs.h"
#include "index/symbols.h"

namespace kv {
std::optional<RemoteName> remote_name(const Record& record) {
  if (!record.realm || record.name.kind == ObjectKind::tail) return std::nullopt;
  const RealmState& realm = *record.realm;
  RemoteName name{remote_space(realm.realm.ns), record.name, record.name.id};
  if (record.node == kRootNode) return name;  // a snapshot before the first block's end
  if (realm.tree.is_tail(record.node)) return std::nullopt;
  NodeId node = record.node;
  size_t depth = realm.tree.first_token(node) / realm.block_tokens();
  for (const size_t tag = remote_tag_depth(depth); depth > tag; --depth) {
    node = realm.tree.parent(node);
  }
  name.tag = realm.nodes.at(node).id;
  return name;
}

RemotePath remote_path(const Realm& realm, uint32_t block, const Query& query) {
  RemotePath path;
  const auto n = static_cast<uint32_t>(query.tokens.size());
  Id parent, before;  // the last block that ends before the last token
  for (uint32_t end = block; end <= n; end += block) {
    parent = block_id(realm, parent, tokens_between(query, end - block, end),
                      extras_in(query.extras, end - block, end), ObjectKind::block);
    path.blocks.push_back(parent);
    if (end < n) before = parent;
  }
  if (n == 0) return path;
  const uint32_t first = (n - 1) / block * block;
  path.snapshot = snapshot_id(realm, before, tokens_between(query, first, n - 1),
                              extras_in(query.extras, first, n - 1));
  return path;
}

std::vector<RemoteCandidate> remote_candidates(const RealmState& realm, const RemotePath& path,
                                               uint32_t tokens) {
  const RemoteSpace space = remote_space(realm.realm.ns);
  const uint32_t block = realm.block_tokens();
  std::vector<RemoteCandidate> out;
  const auto add = [&](ObjectName name, const Id& tag, uint32_t first, uint32_t end) {
    out.push_back({{space, name, tag}, first, end});
  };
  for (size_t depth = 0; depth < path.blocks.size(); ++depth) {
    const Id& id = path.blocks[depth];
    const Id& tag = path.blocks[remote_tag_depth(depth)];
    const auto first = static_cast<uint32_t>(depth) * block;
    const uint32_t end = first + block;
    add({ObjectKind::block, id, 0, 0, 0}, tag, first, end);
    for (size_t g = 0; g < realm.groups.size(); ++g) {
      const PartSpec& spec = realm.groups[g].spec;
      const auto group = static_cast<uint16_t>(g);
      const bool rows = spec.has_rows() && !spec.rows_in_block();
      const bool end_state = !spec.has_rows() && spec.snapshot == SnapshotPlace::block_end;
      if (rows) add({ObjectKind::supplement, id, group, first, end}, tag, first, end);
      if (spec.kind == PartKind::pooled || end_state) {
        add({ObjectKind::supplement, id, group, end, end}, tag, first, end);
      }
    }
    if (realm.has_snapshots()) {
      add({ObjectKind::snapshot, snapshot_id(realm.realm, id, {}, {}), 0, 0, 0}, tag, end, end);
    }
  }
  if (realm.has_snapshots() && tokens > 1 && (tokens - 1) % block != 0) {
    const size_t blocks = (tokens - 1) / block;
    const Id& tag = blocks == 0 ? path.snapshot : path.blocks[remote_tag_depth(blocks - 1)];
    add({ObjectKind::snapshot, path.snapshot, 0, 0, 0}, tag, tokens - 1, tokens - 1);
  }
  return out;
}

}  // namespace kv
