// cachectl delete: one stored token sequence leaves the directory, with every block that no other
// one has.
//
// The same rule as Client::erase_entry: earlier turns that it goes on from belong to it, unless
// another sequence goes on from them too; sequences that go on from it stay whole. --dry-run only
// reads, and is safe beside a daemon. Nothing is removed where a file can't be understood: it may
// be what keeps a block.
#include <algorithm>
#include <set>

#include "index/prefix_tree.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

using Files = std::set<const InspectedFile*>;

bool same_realm(const Object& a, const Object& b) {
  return a.ns == b.ns && a.fingerprint == b.fingerprint && a.profile == b.profile;
}

// Tokens and extras from the first object of the path on: all of them, of a complete one.
struct Sequence {
  explicit Sequence(const Entry& entry) : first(entry.path.front()->header.first_token) {
    for (const auto* step : entry.path) {
      const Object& o = step->header;
      tokens.insert(tokens.end(), o.tokens.begin(), o.tokens.end());
      extras.insert(extras.end(), o.extras.begin(), o.extras.end());
    }
  }
  bool begins_with(const Sequence& o) const {
    if (o.first != first || o.tokens.size() > tokens.size()) return false;
    auto own = extras_in(extras, first, first + static_cast<uint32_t>(o.tokens.size()));
    return std::equal(o.tokens.begin(), o.tokens.end(), tokens.begin()) &&
           std::equal(own.begin(), own.end(), o.extras.begin(), o.extras.end());
  }
  uint32_t first;
  std::vector<Token> tokens;
  std::vector<Extra> extras;
};

// The files that nobody needs without entries[gone].
Files files_of(const StoreView& store, const std::vector<Entry>& entries, size_t gone) {
  const Sequence sequence(entries[gone]);
  std::vector<std::pair<const Entry*, Sequence>> others;
  std::vector<const Entry*> ours{&entries[gone]};
  std::vector<std::pair<const Entry*, Sequence>> before;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i == gone || !same_realm(entries[i].leaf->header, entries[gone].leaf->header)) continue;
    Sequence own(entries[i]);
    (sequence.begins_with(own) ? before : others).emplace_back(&entries[i], std::move(own));
  }
  Files keep;
  for (const auto& [entry, own] : before) {
    bool shared = std::any_of(others.begin(), others.end(),
                              [&own = own](const auto& o) { return o.second.begins_with(own); });
    if (!shared) ours.push_back(entry);
    if (shared) keep.insert(entry->files.begin(), entry->files.end());
  }
  for (const auto& [entry, own] : others) keep.insert(entry->files.begin(), entry->files.end());
  Files out;
  auto take = [&](const InspectedFile* file) {
    if (!keep.contains(file)) out.insert(file);
  };
  for (const Entry* entry : ours) {
    for (const auto* file : entry->files) {
      take(file);
      if (file->kind != FileKind::block || keep.contains(file)) continue;
      for (const auto* child : store.children_of(file->name.id)) {  // checkpoints on its way
        if (child->kind == FileKind::snapshot) take(child);
      }
    }
  }
  return out;
}

struct Removed {
  std::string id;  ///< of the sequence's last object
  size_t objects = 0;
};

// By the daemon, which takes it out of RAM too.
Result<Removed> remove_live(const Request& request) {
  KV_ASSIGN_OR_RETURN(StoreView store, StoreView::load(request));
  const auto entries = store.entries();
  KV_ASSIGN_OR_RETURN(const size_t gone, find_entry(entries, request.id));
  const Object& leaf = entries[gone].leaf->header;
  const auto record = store.model_of(leaf);
  if (!record || !entries[gone].complete)
    return invalid_argument("nothing serves it: `cachectl gc`");
  KV_ASSIGN_OR_RETURN(auto client, daemon_of({request.socket, {}, {}, {}}, leaf.ns));
  KV_ASSIGN_OR_RETURN(const OpenReply model,
                      client->open({record->model, nullptr}, deadline_in(kPatience)));
  Sequence sequence(entries[gone]);
  const QueryRequest query{
      model.model, {std::move(sequence.tokens), std::move(sequence.extras)}, leaf.profile};
  KV_ASSIGN_OR_RETURN(const uint64_t objects, client->erase_entry(query, deadline_in(kPatience)));
  return Removed{leaf.name.id.hex(), objects};
}

Result<Removed> remove(const Request& request) {
  if (!request.socket.empty() && !request.dry_run) return remove_live(request);
  std::unique_ptr<SsdTier> tier;
  if (!request.dry_run) {
    KV_ASSIGN_OR_RETURN(tier, own_store(request, {}));
  }
  KV_ASSIGN_OR_RETURN(StoreView store, StoreView::load(request));
  for (const auto& file : store.inspection().files) {
    if (file.status.ok() || file.name.id.is_zero()) continue;
    return corruption(file.path + ": " + file.status.message() + "; nothing is removed");
  }
  const auto entries = store.entries();
  KV_ASSIGN_OR_RETURN(size_t gone, find_entry(entries, request.id));
  const Files files = files_of(store, entries, gone);
  if (tier) {
    KV_RETURN_IF_ERROR(tier->recover().status());
    std::vector<ObjectName> names;
    for (const auto* file : files) names.push_back(file->name);
    KV_RETURN_IF_ERROR(tier->erase(names).status());
    KV_RETURN_IF_ERROR(tier->checkpoint());
  }
  return Removed{entries[gone].leaf->name.id.hex(), files.size()};
}

}  // namespace

Exit run_delete(const Request& request) {
  auto done = remove(request);
  if (!done.ok()) return report_error(done.status());
  if (request.json) {
    print_json({{"dry_run", request.dry_run}, {"id", done->id}, {"objects", done->objects}});
  } else {
    std::printf("%s %s of %s\n", request.dry_run ? "would remove" : "removed",
                counted(done->objects, "object").c_str(), done->id.c_str());
  }
  return Exit::ok;
}

}  // namespace kv::cachectl
