// Tags by depth, ids by tokens.
#include "cachesvc/core/remote_names.h"

#include <algorithm>
#include <set>

#include "cachesvc/core/needs.h"
#include "index/symbols.h"

namespace kv {
namespace {

// Stores of such a model have pieces whose names depend on what was stored before.
bool has_unnamed(const RealmState& realm) {
  return realm.has_supplements() || realm.has_snapshots();
}

// As which the object stands in a list. `tail`: the tail's end that it is or hangs on, or 0.
RemoteEntry entry_of(const Record& record, uint32_t tail) {
  const ObjectName& name = record.name;
  RemoteEntry entry{name.kind, tail, 0, 0, 0};
  if (name.kind == ObjectKind::snapshot) entry.end = record.attachment->position;
  if (name.kind != ObjectKind::supplement) return entry;
  entry.group = name.group;
  entry.first_row = name.first_row;
  entry.end_row = name.end_row;
  return entry;
}

}  // namespace

std::optional<RemoteName> remote_name(const Record& record) {
  if (!record.realm) return std::nullopt;
  const RealmState& realm = *record.realm;
  RemoteName name{remote_space(realm.realm.ns), record.name, record.name.id};
  NodeId node = record.node;
  uint32_t tail = 0;
  if (node != kRootNode && realm.tree.is_tail(node)) {
    tail = realm.tree.end_token(node);
    node = realm.tree.parent(node);
  }
  if (node == kRootNode) return name;  // nothing lies before it
  if (record.name.kind != ObjectKind::block && has_unnamed(realm)) {
    name.block = realm.nodes.at(node).id;
    name.entry = entry_of(record, tail);
  }
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
  Id parent;
  for (uint32_t end = block; end <= n; end += block) {
    parent = block_id(realm, parent, tokens_between(query, end - block, end),
                      extras_in(query.extras, end - block, end), ObjectKind::block);
    path.blocks.push_back(parent);
  }
  if (n < 2) return path;
  for (size_t i = 0; i < path.ends.size(); ++i) {
    const uint32_t end = n - 1 + static_cast<uint32_t>(i), first = end / block * block;
    path.ends[i].tokens = end;
    const Id before = first == 0 ? Id() : path.blocks[first / block - 1];
    const auto tokens = tokens_between(query, first, end);
    const auto extras = extras_in(query.extras, first, end);
    if (first < end) {
      path.ends[i].tail = block_id(realm, before, tokens, extras, ObjectKind::tail);
    }
    if (i == 0) path.snapshot = snapshot_id(realm, before, tokens, extras);
  }
  return path;
}

std::vector<RemoteList> remote_lists(const RealmState& realm, const RemotePath& path) {
  std::vector<RemoteList> lists;
  if (!has_unnamed(realm)) return lists;
  const size_t blocks = path.blocks.size();
  const RemoteSpace space = remote_space(realm.realm.ns);
  for (size_t d = blocks - std::min(blocks, kMaxRemoteNames); d < blocks; ++d) {
    lists.push_back({space, path.blocks[d], path.blocks[remote_tag_depth(d)]});
  }
  return lists;
}

std::vector<RemoteListedName> remote_listed(const Realm& realm, uint32_t block, const Query& query,
                                            const RemotePath& path,
                                            const std::vector<RemoteListed>& listed) {
  std::vector<RemoteListedName> out;
  const auto n = static_cast<uint32_t>(query.tokens.size());
  const size_t from = path.blocks.size() - listed.size();
  for (size_t i = 0; i < listed.size(); ++i) {
    const size_t depth = from + i;
    const Id& own = path.blocks[depth];
    const uint32_t first = static_cast<uint32_t>(depth) * block, behind = first + block;
    for (const RemoteEntry& e : listed[i]) {
      if (out.size() == kMaxRemoteNames) return out;
      ObjectName name{e.kind, own, e.group, e.first_row, e.end_row};
      if (e.end == 0 && e.kind == ObjectKind::supplement) {
        if (e.first_row < first || e.first_row > e.end_row || e.end_row > behind) continue;
        out.push_back({name, depth, first, behind});
        continue;
      }
      if (e.end < behind || e.end >= behind + block || e.end > n) continue;
      const auto tokens = tokens_between(query, behind, e.end);
      const auto extras = extras_in(query.extras, behind, e.end);
      if (e.kind == ObjectKind::snapshot) {
        name.id = snapshot_id(realm, own, tokens, extras);
      } else if (e.end == behind) {
        continue;  // no tail
      } else {
        name.id = block_id(realm, own, tokens, extras, ObjectKind::tail);
      }
      if (e.kind == ObjectKind::supplement) {
        if (e.first_row < behind || e.first_row > e.end_row || e.end_row > e.end) continue;
      } else {
        name.group = 0, name.first_row = 0, name.end_row = 0;
      }
      out.push_back({name, depth + 1, behind, e.end});
    }
  }
  return out;
}

namespace {

// Collects candidates, each once, by the place of their block or tail on the path.
class Naming {
 public:
  Naming(const RealmState& realm, const RemotePath& path)
      : realm_(realm),
        path_(path),
        space_(remote_space(realm.realm.ns)),
        block_(realm.block_tokens()) {}

  void block(size_t depth) {
    const auto first = static_cast<uint32_t>(depth) * block_;
    add(depth, {ObjectKind::block, path_.blocks[depth], 0, 0, 0}, tag_of(depth), first,
        first + block_);
  }
  void tail(const RemotePath::End& end) {
    if (end.tail.is_zero()) return;
    const size_t depth = end.tokens / block_;
    add(depth, {ObjectKind::tail, end.tail, 0, 0, 0}, tag_behind(depth, end.tail),
        static_cast<uint32_t>(depth) * block_, end.tokens);
  }
  // A need of a store of end.tokens.
  void need(const Need& need, const RemotePath::End& end) {
    if (need.kind == ObjectKind::snapshot) return snapshot(need.end_row);
    const size_t depth = need.block_index;
    const auto first = static_cast<uint32_t>(depth) * block_;
    const bool tail = depth >= end.tokens / block_;
    const Id& id = tail ? end.tail : path_.blocks[depth];
    add(depth, {ObjectKind::supplement, id, need.group, need.first_row, need.end_row},
        tail ? tag_behind(depth, id) : tag_of(depth), first, tail ? end.tokens : first + block_);
  }
  // Needs of a hit that ends with a block.
  void block_end(uint32_t n) {
    const RemotePath::End end{n, {}};
    for (size_t g = 0; g < realm_.groups.size(); ++g) {
      const PartSpec& spec = realm_.groups[g].spec;
      const auto group = static_cast<uint16_t>(g);
      const bool state = demands_snapshot(spec, n) && spec.snapshot == SnapshotPlace::block_end;
      if (state || demands_carry(spec, n)) {
        need({ObjectKind::supplement, n / block_ - 1, group, n, n, true}, end);
      }
      if (!spec.has_rows() || spec.rows_in_block()) continue;
      for (const RowRange& rows : demanded_rows(spec, n)) {
        for (uint32_t at = rows.first; at < rows.end;) {
          const uint32_t to = std::min(rows.end, (at / block_ + 1) * block_);
          need({ObjectKind::supplement, at / block_, group, at, to, true}, end);
          at = to;
        }
      }
    }
    if (realm_.has_snapshots()) snapshot(n);
  }
  void listed(const RemoteListedName& each) {
    const ObjectName& name = each.object;
    if (name.kind == ObjectKind::supplement && name.group >= realm_.groups.size()) return;
    const bool of_block = each.depth < path_.blocks.size() && name.id == path_.blocks[each.depth];
    add(each.depth, name, of_block ? tag_of(each.depth) : tag_behind(each.depth, name.id),
        each.first, each.end);
  }
  std::vector<RemoteCandidate> take() {
    std::stable_sort(found_.begin(), found_.end(), [](const Placed& a, const Placed& b) {
      if (a.depth != b.depth) return a.depth < b.depth;
      return a.candidate.name.object.kind < b.candidate.name.object.kind;
    });
    std::vector<RemoteCandidate> out;
    for (Placed& each : found_) out.push_back(std::move(each.candidate));
    return out;
  }

 private:
  struct Placed {
    size_t depth;
    RemoteCandidate candidate;
  };
  const Id& tag_of(size_t depth) const { return path_.blocks[remote_tag_depth(depth)]; }
  const Id& tag_behind(size_t blocks, const Id& own) const {
    return blocks == 0 ? own : tag_of(blocks - 1);
  }
  void snapshot(uint32_t n) {
    const size_t blocks = n / block_;
    const bool after_block = n % block_ == 0;
    if (!after_block && n != path_.ends[0].tokens) return;
    const Id id =
        after_block ? snapshot_id(realm_.realm, path_.blocks[blocks - 1], {}, {}) : path_.snapshot;
    add(blocks == 0 ? 0 : blocks - 1, {ObjectKind::snapshot, id, 0, 0, 0}, tag_behind(blocks, id),
        static_cast<uint32_t>(blocks) * block_, n);
  }
  void add(size_t depth, const ObjectName& name, const Id& tag, uint32_t first, uint32_t end) {
    if (!named_.insert(name).second) return;
    found_.push_back({depth, {{space_, name, tag}, first, end}});
  }

  const RealmState& realm_;
  const RemotePath& path_;
  const RemoteSpace space_;
  const uint32_t block_;
  std::set<ObjectName> named_;
  std::vector<Placed> found_;
};

}  // namespace

std::vector<RemoteCandidate> remote_candidates(const RealmState& realm, const RemotePath& path,
                                               const std::vector<RemoteListedName>& listed,
                                               uint32_t interval) {
  Naming naming(realm, path);
  const uint32_t block = realm.block_tokens();
  for (size_t depth = 0; depth < path.blocks.size(); ++depth) naming.block(depth);
  for (const RemotePath::End& end : path.ends) naming.tail(end);
  if (!has_unnamed(realm)) return naming.take();
  EndRules rules;
  rules.interval = interval;
  for (const RemotePath::End& end : path.ends) {
    if (end.tokens == 0) continue;
    for (const Need& need : attached_needs(realm.groups, block, end.tokens, rules, {})) {
      naming.need(need, end);
    }
  }
  for (size_t depth = 0; depth < path.blocks.size(); ++depth) {
    naming.block_end(static_cast<uint32_t>(depth + 1) * block);
  }
  for (const RemoteListedName& each : listed) naming.listed(each);
  return naming.take();
}

}  // namespace kv
