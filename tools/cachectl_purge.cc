// cachectl purge: every trace of one namespace leaves the directory.
//
// Its objects, model records and the profiles that only it named; all temporary and quarantined
// files, as nobody can tell whose a damaged one was; and the catalog's pages, which are written
// anew. A file that can't be understood stays and is told: it may be the namespace's. So do all
// profiles then: it may need one of them. --dry-run only reads, and is safe beside a daemon.
#include <set>

#include "proto/identity.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

struct Traces {
  std::vector<ObjectName> objects;
  std::set<Id> models;    ///< ids of its model records
  std::set<Id> profiles;  ///< that nothing else names
  uint64_t quarantined = 0;
  uint64_t not_understood = 0;  ///< files that may be the namespace's
  uint64_t sealed = 0;          ///< of these, with another key
};

class Search {
 public:
  explicit Search(const std::string& ns) : ns_(ns) {}
  void add(const Object& o) {
    if (take(o.ns, o.profile)) out.objects.push_back(o.name);
  }
  void add(const ModelRecord& m) {
    if (take(m.ns, m.profile)) out.models.insert(model_id(m.ns, m.model.fingerprint));
  }
  Traces finish() {
    for (const Id& id : others_) out.profiles.erase(id);
    // One of them may name any profile.
    if (out.not_understood > 0) out.profiles.clear();
    return std::move(out);
  }
  Traces out;

 private:
  bool take(const std::string& own, const Id& profile) {
    (own == ns_ ? out.profiles : others_).insert(profile);
    return own == ns_;
  }
  const std::string& ns_;
  std::set<Id> others_;
};

Traces traces_of(const std::string& ns, const Recovery& found, uint64_t quarantined) {
  Search search(ns);
  for (const KnownObject& known : found.objects) search.add(known.header);
  for (const ModelRecord& record : found.models) search.add(record);
  search.out.quarantined = quarantined;
  search.out.not_understood = found.unreadable + found.newer_files + found.other_key_files;
  search.out.sealed = found.other_key_files;
  return search.finish();
}

// The same from outside: a recovery would mend the directory.
Traces traces_of(const std::string& ns, const Inspection& seen) {
  Search search(ns);
  search.out.quarantined = seen.quarantined.size();
  for (const InspectedFile& file : seen.files) {
    if (file.status.code() == StatusCode::corruption) {
      ++search.out.quarantined;
    } else if (!file.status.ok()) {  // a foreign name is nobody's
      if (!file.name.id.is_zero()) ++search.out.not_understood;
    } else if (file.model) {
      search.add(*file.model);
    } else if (is_object(file)) {
      search.add(file.header);
    }
  }
  search.out.sealed = seen.totals.other_key_files;
  return search.finish();
}

Status remove(SsdTier& tier, const Traces& traces) {
  KV_RETURN_IF_ERROR(tier.erase(traces.objects).status());
  for (const Id& id : traces.models) KV_RETURN_IF_ERROR(tier.erase_model_records(id));
  for (const Id& id : traces.profiles) KV_RETURN_IF_ERROR(tier.erase_profile(id));
  return tier.wipe();
}

// By the daemon, of RAM and the SSD; quarantine stays.
Result<Traces> purge_live(const Request& request) {
  KV_ASSIGN_OR_RETURN(auto client, daemon_of({request.socket, {}, {}, {}}, request.ns));
  KV_ASSIGN_OR_RETURN(const uint64_t objects, client->erase(0, {}, deadline_in(kPatience)));
  if (objects == 0) {
    return Status(StatusCode::not_found, "namespace " + request.ns + " has nothing there");
  }
  Traces out;
  out.objects.resize(objects);
  return out;
}

// A name that isn't there is most likely mistyped: nothing is touched then.
Result<Traces> purge(const Request& request) {
  if (!request.socket.empty() && !request.dry_run) return purge_live(request);
  KV_ASSIGN_OR_RETURN(
      Inspection inspected,
      inspect_directory(request.directory, InspectDepth::headers, request.key.get()));
  Traces seen = traces_of(request.ns, inspected);
  if (seen.objects.empty() && seen.models.empty() && seen.not_understood > 0) {
    seen.quarantined = 0;
    return seen;
  }
  if (seen.objects.empty() && seen.models.empty()) {
    return Status(StatusCode::not_found, "namespace " + request.ns + " has nothing in " +
                                             request.directory + "; nothing was touched");
  }
  if (request.dry_run) return seen;
  KV_ASSIGN_OR_RETURN(auto tier, own_store(request, {}));
  KV_ASSIGN_OR_RETURN(Recovery found, tier->recover());
  Traces traces = traces_of(request.ns, found, tier->stats().quarantine_files);
  KV_RETURN_IF_ERROR(remove(*tier, traces));
  return traces;
}

}  // namespace

Exit run_purge(const Request& request) {
  auto traces = purge(request);
  if (!traces.ok()) return report_error(traces.status());
  if (request.json) {
    print_json({{"dry_run", request.dry_run},
                {"objects", traces->objects.size()},
                {"models", traces->models.size()},
                {"profiles", traces->profiles.size()},
                {"quarantined", traces->quarantined},
                {"not_understood", traces->not_understood},
                {"sealed", traces->sealed}});
  } else {
    std::printf("%s %s, %s, %s and %s in quarantine\n",
                request.dry_run ? "would remove" : "removed",
                counted(traces->objects.size(), "object").c_str(),
                counted(traces->models.size(), "model").c_str(),
                counted(traces->profiles.size(), "profile").c_str(),
                counted(traces->quarantined, "file").c_str());
  }
  if (traces->not_understood > 0) {
    std::fprintf(stderr,
                 "cachectl: %s can't be understood and may be the namespace's; the profiles stay\n",
                 counted(traces->not_understood, "file").c_str());
  }
  if (traces->sealed > 0) {
    std::fprintf(stderr, "cachectl: %s of these sealed with another key than --key-file's\n",
                 counted(traces->sealed, "file").c_str());
  }
  return traces->not_understood == 0 ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
