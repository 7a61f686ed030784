// cachectl gc: removes what serves nothing, or names it (--dry-run).
//
// Garbage: quarantined files; temporary files of a dead process; objects without their path to the
// root, their model record or their profile; profiles that nothing names. Strangers stay. Where any
// file is damaged, unreadable, of another version or key nothing is called garbage: what seems to
// miss it may be whole. Beside a running daemon a listing is no snapshot, so --dry-run looks a
// second time for what seemed missing.
#include <algorithm>
#include <set>

#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

struct Garbage {
  std::string path;
  std::string reason;
  uint64_t allocated_bytes = 0;
  const InspectedFile* file = nullptr;  ///< null: temporary or quarantined
};

/// Why an object can't be served; empty if it can.
std::string unreachable(const StoreView& store, const InspectedFile& file) {
  if (!store.model_of(file.header)) return "its model record is missing";
  if (!store.profile(file.header.profile)) return "its profile is missing";
  if (file.kind == FileKind::supplement) {
    auto same = store.with_id(file.name.id);
    bool base = std::any_of(same.begin(), same.end(),
                            [](auto* f) { return f->kind != FileKind::supplement; });
    if (!base) return "its block is missing";
  }
  bool complete = false;
  store.path_to(file, complete);
  return complete ? "" : "a block of its path is missing";
}

/// Returns: corruption if a file of the store can't be understood.
Result<std::vector<Garbage>> find_garbage(const StoreView& store) {
  std::vector<Garbage> out;
  for (const auto& f : store.inspection().files) {
    if (f.status.ok() || f.name.id.is_zero()) continue;  // good, or a stranger
    return corruption(f.path + ": " + f.status.message() + "; nothing is removed " +
                      (f.other_key ? "without its --key-file"
                                   : "before `verify --repair` or the version that wrote it"));
  }
  for (const auto& f : store.inspection().quarantined) {
    out.push_back({f.path, "quarantined", f.allocated_bytes});
  }
  for (const auto& f : store.inspection().temporary) {
    out.push_back(
        {f.path, "temporary: of a dead process, unless a daemon runs", f.allocated_bytes});
  }
  std::set<Id> named;
  for (const auto& f : store.inspection().files) {
    if (!f.status.ok()) continue;
    if (f.model) named.insert(f.model->profile);
    if (!is_object(f)) continue;
    std::string reason = unreachable(store, f);
    if (!reason.empty()) {
      out.push_back({f.path, reason, f.allocated_bytes, &f});
    } else {
      named.insert(f.header.profile);
    }
  }
  for (const auto& f : store.inspection().files) {
    if (!f.status.ok() || !f.profile || named.contains(f.name.id)) continue;
    out.push_back({f.path, "a profile that nothing names", f.allocated_bytes, &f});
  }
  return out;
}

/// Leaves only what is garbage in both views.
void keep_common(std::vector<Garbage>& garbage, const std::vector<Garbage>& later) {
  std::set<std::string> still;
  for (const auto& g : later) still.insert(g.path);
  std::erase_if(garbage, [&](const Garbage& g) { return !still.contains(g.path); });
}

Status remove(SsdTier& tier, const std::vector<Garbage>& garbage) {
  std::vector<ObjectName> objects;
  std::vector<Id> profiles;
  for (const auto& g : garbage) {
    if (g.file == nullptr) continue;  // gone since the tier was opened
    if (g.file->profile) {
      profiles.push_back(g.file->name.id);
    } else {
      objects.push_back(g.file->name);
    }
  }
  KV_RETURN_IF_ERROR(tier.erase(objects).status());
  for (const Id& id : profiles) KV_RETURN_IF_ERROR(tier.erase_profile(id));
  return tier.checkpoint();
}

void print(const Request& request, const std::vector<Garbage>& garbage) {
  uint64_t bytes = 0;
  Json list = Json::array();
  for (const auto& g : garbage) {
    bytes += g.allocated_bytes;
    list.push_back(
        {{"path", g.path}, {"reason", g.reason}, {"allocated_bytes", g.allocated_bytes}});
  }
  if (request.json) {
    print_json({{"dry_run", request.dry_run}, {"allocated_bytes", bytes}, {"files", list}});
    return;
  }
  const char* verb = request.dry_run ? "would remove" : "removed";
  for (const auto& g : garbage) {
    std::printf("%s  %s: %s\n", verb, printable(g.path).c_str(), g.reason.c_str());
  }
  std::printf("%s %s, %s on disk\n", verb, counted(garbage.size(), "file").c_str(),
              human_bytes(bytes).c_str());
}

Exit run_dry(const Request& request) {
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  auto garbage = find_garbage(*store);
  if (!garbage.ok()) return report_error(garbage.status());
  auto again = StoreView::load(request);
  if (!again.ok()) return report_error(again.status());
  auto later = find_garbage(*again);
  if (!later.ok()) return report_error(later.status());
  keep_common(*garbage, *later);
  print(request, *garbage);
  return Exit::ok;
}

}  // namespace

Exit run_gc(const Request& request) {
  if (request.dry_run) return run_dry(request);
  SsdOptions options;
  options.quarantine_bytes = 0;  // recover() empties it
  auto tier = own_store(request, std::move(options));
  if (!tier.ok()) return report_error(tier.status());
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  auto garbage = find_garbage(*store);
  if (!garbage.ok()) return report_error(garbage.status());
  auto found = (*tier)->recover();
  if (!found.ok()) return report_error(found.status());
  Status removed = remove(**tier, *garbage);
  if (!removed.ok()) return report_error(removed);
  print(request, *garbage);
  return Exit::ok;
}

}  // namespace kv::cachectl
