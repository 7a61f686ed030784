// status and doctor of a directory alone: what its files are, and what is wrong with them.
#include <map>
#include <set>
#include <tuple>

#include "codec/stream_bytes.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"
#include "tools/cachectl_totals.h"

namespace kv::cachectl {
namespace {

struct Summary {
  StoreTotals totals;
  uint64_t directory_bytes = 0, entries = 0, incomplete = 0, tokens = 0;
  std::map<std::string, uint64_t> kinds;  ///< files
  std::set<std::string> namespaces, models;
};

Summary summary_of(const StoreView& store) {
  Summary out;
  const Inspection& all = store.inspection();
  const std::vector<Entry> entries = store.entries();
  out.totals = totals_of(all, users_of(entries));
  out.directory_bytes = all.totals.directory_bytes;
  out.entries = entries.size();
  for (const Entry& e : entries) {
    if (!e.complete) ++out.incomplete;
    out.tokens += e.leaf->header.end_token();
    out.namespaces.insert(e.leaf->header.ns);
    out.models.insert(store.model_name(e.leaf->header));
  }
  for (const auto& [kind, sums] : all.totals.kinds) out.kinds[kind] = sums.files;
  return out;
}

// "model X: its rows take …" of each model and profile whose transforms do not fit what is stored.
std::vector<std::string> misfits_of(const StoreView& store) {
  struct Stored {
    std::string model;
    std::shared_ptr<const Profile> profile;  // null: none with transforms that fits the model
    uint64_t token_bytes = 0;
    StreamBytes bytes;
  };
  std::map<std::tuple<std::string, Id, Id>, Stored> all;
  for (const InspectedFile& file : store.inspection().files) {
    const bool blocks = file.kind == FileKind::block || file.kind == FileKind::supplement;
    if (!file.status.ok() || !blocks) continue;
    const Object& o = file.header;
    const auto [at, is_new] = all.try_emplace({o.ns, o.fingerprint, o.profile});
    Stored& stored = at->second;
    if (is_new) {
      const auto profile = store.profile(o.profile);
      const auto record = store.model_of(o);
      if (!profile || !profile->transforms || !record) continue;
      if (!validate(*profile, record->model).ok()) continue;
      stored = {store.model_name(o), profile, streamed_token_bytes(record->model, *profile), {}};
    }
    if (!stored.profile || o.tokens.size() != stored.profile->block_tokens) continue;
    for (const Plane& plane : o.planes) stored.bytes += stream_bytes(plane, *stored.profile);
  }
  std::vector<std::string> out;
  for (const auto& [key, stored] : all) {
    const std::string words = fit_words(fit_of(stored.bytes, stored.token_bytes), stored.bytes);
    if (!words.empty()) out.push_back("model " + stored.model + ": " + words);
  }
  return out;
}

std::string joined(const std::set<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + printable(name);
  return out.empty() ? "none" : out;
}

void print(const StoreView& store, const Summary& s) {
  std::string kinds;
  for (const auto& [kind, files] : s.kinds) {
    kinds += (kinds.empty() ? "" : ", ") + counted(files, kind);
  }
  const InspectTotals& t = store.inspection().totals;
  std::printf("on disk    %s: %s\n", human_bytes(s.directory_bytes).c_str(),
              kinds.empty() ? "nothing stored" : kinds.c_str());
  std::printf("entries    %s of %llu tokens, %llu of them incomplete\n",
              counted(s.entries, "sequence").c_str(), static_cast<unsigned long long>(s.tokens),
              static_cast<unsigned long long>(s.incomplete));
  std::printf("sharing    saves %s: %s of their own, %s shared\n",
              human_bytes(s.totals.saved).c_str(), human_bytes(s.totals.unique).c_str(),
              human_bytes(s.totals.shared).c_str());
  std::printf("namespaces %s\nmodels     %s\n", joined(s.namespaces).c_str(),
              joined(s.models).c_str());
  for (const std::string& misfit : misfits_of(store)) {
    std::printf("fit        %s\n", printable(misfit).c_str());
  }
  std::printf(
      "left alone %llu damaged, %zu in quarantine, %llu sealed with another key, %llu "
      "foreign or of another version\n",
      static_cast<unsigned long long>(t.damaged_files), store.inspection().quarantined.size(),
      static_cast<unsigned long long>(t.other_key_files),
      static_cast<unsigned long long>(t.unknown_files));
}

// ": format version 9, this program reads 1 and 4", of the first such file.
std::string another_version(const Inspection& all) {
  for (const InspectedFile& f : all.files) {
    const std::string& said = f.status.message();
    if (said.starts_with("format version")) return ": " + said;
  }
  return {};
}

// Models of one name and namespace that have several fingerprints: servers that disagree.
void say_models(const StoreView& store, std::vector<std::string>& out) {
  std::map<std::pair<std::string, std::string>, std::set<Id>> seen;
  for (const auto& record : store.models()) {
    if (record->model.name.empty()) continue;
    seen[{record->ns, record->model.name}].insert(record->model.fingerprint);
  }
  for (const auto& [key, fingerprints] : seen) {
    if (fingerprints.size() < 2) continue;
    out.push_back("Model " + key.second + " in namespace " + key.first + " has " +
                  counted(fingerprints.size(), "fingerprint") +
                  ", which share nothing: do all its servers compute the same one?");
  }
}

}  // namespace

std::vector<std::string> findings(const StoreView& store) {
  std::vector<std::string> out;
  const InspectTotals& t = store.inspection().totals;
  if (t.damaged_files > 0) {
    out.push_back(counted(t.damaged_files, "file") +
                  " can't be read or understood: `cachectl verify` names each, with --repair it "
                  "moves them away.");
  }
  if (const size_t n = store.inspection().quarantined.size(); n > 0) {
    out.push_back(counted(n, "file") +
                  " in quarantine did not verify: the device or somebody else changes files; "
                  "`cachectl gc` removes them.");
  }
  if (t.other_key_files > 0) {
    out.push_back(counted(t.other_key_files, "file") + " of " + human_bytes(t.other_key_bytes) +
                  " serve nothing without their key: --key-file.");
  }
  if (t.unknown_files > 0) {
    out.push_back(counted(t.unknown_files, "file") +
                  " are foreign or of another version of cachesvc, and are left alone" +
                  another_version(store.inspection()) + ".");
  }
  const Summary s = summary_of(store);
  if (s.incomplete > 0) {
    out.push_back(counted(s.incomplete, "sequence") +
                  " lack a block before them and serve nothing until it returns; `cachectl gc` "
                  "removes them.");
  }
  say_models(store, out);
  for (const std::string& misfit : misfits_of(store)) out.push_back("The " + misfit + ".");
  if (out.empty()) out.push_back("Nothing is wrong with the files' heads.");
  if (s.entries == 0) out.push_back("Nothing is stored.");
  return out;
}

Exit run_store_status(const Request& request) {
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  const Summary s = summary_of(*store);
  if (!request.json) {
    print(*store, s);
    return Exit::ok;
  }
  const InspectTotals& t = store->inspection().totals;
  print_json({{"directory", request.directory},
              {"directory_bytes", s.directory_bytes},
              {"unique_bytes", s.totals.unique},
              {"shared_bytes", s.totals.shared},
              {"saved_bytes", s.totals.saved},
              {"other_bytes", s.totals.others},
              {"rest_bytes", s.totals.rest},
              {"files", s.kinds},
              {"entries", s.entries},
              {"incomplete_entries", s.incomplete},
              {"tokens", s.tokens},
              {"namespaces", s.namespaces},
              {"models", s.models},
              {"misfits", misfits_of(*store)},
              {"damaged_files", t.damaged_files},
              {"quarantine_files", store->inspection().quarantined.size()},
              {"sealed_files", t.other_key_files},
              {"foreign_files", t.unknown_files}});
  return Exit::ok;
}

}  // namespace kv::cachectl
