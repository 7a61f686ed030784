// cachectl purge: every trace of one namespace leaves the directory.
//
// Its objects, model records and the profiles that only it named; all temporary and quarantined
// files, as nobody can tell whose a damaged one was; and the catalog's pages, which are written
// anew. A file that can't be understood stays and is told: it may be the namespace's.
#include <set>

#include "proto/identity.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

struct Traces {
  std::vector<ObjectName> objects;
  std::set<Id> models;    ///< ids of its model records
  std::set<Id> profiles;  ///< that nothing outside names
};

Traces traces_of(const std::string& ns, const Recovery& found) {
  Traces out;
  std::set<Id> others;
  auto take = [&](const std::string& own, const Id& profile) {
    (own == ns ? out.profiles : others).insert(profile);
    return own == ns;
  };
  for (const KnownObject& known : found.objects) {
    const Object& o = known.header;
    if (take(o.ns, o.profile)) out.objects.push_back(o.name);
  }
  for (const ModelRecord& m : found.models) {
    if (take(m.ns, m.profile)) out.models.insert(model_id(m.ns, m.model.fingerprint));
  }
  for (const Id& id : others) out.profiles.erase(id);
  return out;
}

Status remove(SsdTier& tier, const Traces& traces) {
  KV_RETURN_IF_ERROR(tier.erase(traces.objects).status());
  for (const Id& id : traces.models) KV_RETURN_IF_ERROR(tier.erase_model_records(id));
  for (const Id& id : traces.profiles) KV_RETURN_IF_ERROR(tier.erase_profile(id));
  return tier.scrub();
}

}  // namespace

Exit run_purge(const Request& request) {
  auto tier = own_store(request, {});
  if (!tier.ok()) return report_error(tier.status());
  auto found = (*tier)->recover();
  if (!found.ok()) return report_error(found.status());
  Traces traces = traces_of(request.ns, *found);
  uint64_t quarantined = (*tier)->stats().quarantine_files;
  uint64_t not_understood = found->unreadable + found->unknown_files + found->other_key_files;
  if (!request.dry_run) {
    Status removed = remove(**tier, traces);
    if (!removed.ok()) return report_error(removed);
  }
  if (request.json) {
    print_json({{"dry_run", request.dry_run},
                {"objects", traces.objects.size()},
                {"models", traces.models.size()},
                {"profiles", traces.profiles.size()},
                {"quarantined", quarantined},
                {"not_understood", not_understood},
                {"sealed", found->other_key_files}});
  } else {
    std::printf(
        "%s %s, %s, %s and %s in quarantine\n", request.dry_run ? "would remove" : "removed",
        counted(traces.objects.size(), "object").c_str(),
        counted(traces.models.size(), "model").c_str(),
        counted(traces.profiles.size(), "profile").c_str(), counted(quarantined, "file").c_str());
  }
  if (not_understood > 0) {
    std::fprintf(stderr, "cachectl: %s can't be understood and may be the namespace's\n",
                 counted(not_understood, "file").c_str());
  }
  if (found->other_key_files > 0) {
    std::fprintf(stderr, "cachectl: %s of these sealed with another key than --key-file's\n",
                 counted(found->other_key_files, "file").c_str());
  }
  return not_understood == 0 ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
