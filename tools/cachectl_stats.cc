// cachectl stats: totals of a directory, by kind of file and by model.
#include <tuple>

#include "tools/cachectl_coding.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

/// Sums over one (namespace, model, profile).
struct RealmTotals {
  std::string model;
  uint64_t entries = 0, incomplete_entries = 0;
  uint64_t files = 0, file_bytes = 0, fp16_bytes = 0;
  uint64_t tokens = 0;  ///< of blocks and tails; shared blocks count once
  bool in_force = false;
  std::vector<PartReport> report;  ///< empty without model record and profile
};
using RealmKey = std::tuple<std::string, Id, Id>;  // namespace, fingerprint, profile

struct PackingTotals {
  uint64_t pieces = 0, unpacked_bytes = 0, stored_bytes = 0;
};

uint64_t allocated_bytes(const std::vector<StrayFile>& files) {
  uint64_t bytes = 0;
  for (const auto& f : files) bytes += f.allocated_bytes;
  return bytes;
}

RealmKey key_of(const Object& o) { return {o.ns, o.fingerprint, o.profile}; }

std::map<RealmKey, RealmTotals> sum_realms(const StoreView& store) {
  std::map<RealmKey, RealmTotals> realms;
  // A model of which nothing is stored, or only damage, is shown too.
  for (const auto& file : store.inspection().files) {
    if (!file.status.ok() || !file.model) continue;
    Object o;
    o.ns = file.model->ns;
    o.fingerprint = file.model->model.fingerprint;
    o.profile = file.model->profile;
    auto record = store.model_of(o);
    if (record && record->serial == file.model->serial) realms.try_emplace(key_of(o));
  }
  for (const auto& file : store.inspection().files) {
    if (!file.status.ok() || !is_object(file)) continue;
    RealmTotals& r = realms[key_of(file.header)];
    ++r.files;
    r.file_bytes += file.file_bytes;
    r.fp16_bytes += fp16_bytes(file.header);
    bool counts = file.kind == FileKind::block || file.kind == FileKind::tail;
    if (counts) r.tokens += file.header.tokens.size();
  }
  for (const Entry& e : store.entries()) {
    RealmTotals& r = realms[key_of(e.leaf->header)];
    ++r.entries;
    if (!e.complete) ++r.incomplete_entries;
  }
  for (auto& [key, r] : realms) {
    Object o;
    std::tie(o.ns, o.fingerprint, o.profile) = key;
    auto record = store.model_of(o);
    auto profile = store.profile(o.profile);
    r.model = store.model_name(o);
    r.in_force = record && record->profile == o.profile;
    if (record && profile) r.report = coding_report(*record, *profile);
  }
  return realms;
}

PackingTotals sum_packing(const Inspection& inspection, Packing packing) {
  PackingTotals out;
  for (const auto& file : inspection.files) {
    for (const auto& piece : file.pieces) {
      if (piece.packing != packing) continue;
      ++out.pieces;
      out.unpacked_bytes += piece.unpacked_bytes;
      out.stored_bytes += piece.bytes.size();
    }
  }
  return out;
}

Json packing_json(const PackingTotals& packing) {
  return {{"pieces", packing.pieces},
          {"unpacked_bytes", packing.unpacked_bytes},
          {"stored_bytes", packing.stored_bytes}};
}

void print_packing(const char* name, const PackingTotals& packing) {
  std::printf("%-16s %s, %s to %s\n", name, counted(packing.pieces, "piece").c_str(),
              human_bytes(packing.unpacked_bytes).c_str(),
              human_bytes(packing.stored_bytes).c_str());
}

Json stats_json(const StoreView& store) {
  const InspectTotals& t = store.inspection().totals;
  Json kinds = Json::object(), models = Json::array();
  for (const auto& [name, k] : t.kinds) {
    kinds[name] = {{"files", k.files},
                   {"file_bytes", k.file_bytes},
                   {"allocated_bytes", k.allocated_bytes},
                   {"unpacked_bytes", k.unpacked_bytes}};
  }
  for (const auto& [key, r] : sum_realms(store)) {
    models.push_back({{"model", r.model},
                      {"namespace", std::get<0>(key)},
                      {"fingerprint", std::get<1>(key).hex()},
                      {"profile", std::get<2>(key).hex()},
                      {"profile_in_force", r.in_force},
                      {"entries", r.entries},
                      {"incomplete_entries", r.incomplete_entries},
                      {"files", r.files},
                      {"tokens", r.tokens},
                      {"stored_bytes", r.file_bytes},
                      {"fp16_bytes", r.fp16_bytes},
                      {"ratio", json_ratio(r.file_bytes, r.fp16_bytes)},
                      {"parts", report_json(r.report)}});
  }
  return {{"directory_bytes", t.directory_bytes},
          {"kinds", kinds},
          {"models", models},
          {"zstd", packing_json(sum_packing(store.inspection(), Packing::zstd))},
          {"split", packing_json(sum_packing(store.inspection(), Packing::split))},
          {"damaged_files", t.damaged_files},
          {"foreign_files", t.unknown_files},
          {"sealed_files", t.other_key_files},
          {"sealed_bytes", t.other_key_bytes},
          {"temporary_files", store.inspection().temporary.size()},
          {"quarantine_files", store.inspection().quarantined.size()},
          {"quarantine_bytes", allocated_bytes(store.inspection().quarantined)}};
}

void print_stats(const StoreView& store) {
  const InspectTotals& t = store.inspection().totals;
  Table models({"NAMESPACE", "MODEL", "PROFILE", "ENTRIES", "TOKENS", "STORED", "OF FP16"}, 3);
  auto realms = sum_realms(store);
  for (const auto& [key, r] : realms) {
    models.add({printable(std::get<0>(key)), printable(r.model),
                std::get<2>(key).hex().substr(0, 12) + (r.in_force ? "" : " (not in force)"),
                std::to_string(r.entries), std::to_string(r.tokens), human_bytes(r.file_bytes),
                human_ratio(r.file_bytes, r.fp16_bytes)});
  }
  models.print();
  for (const auto& [key, r] : realms) {
    if (!r.in_force) continue;
    std::printf("\ncoding of %s in %s\n", printable(r.model).c_str(),
                printable(std::get<0>(key)).c_str());
    for (const std::string& line : report_lines(r.report)) std::printf("  %s\n", line.c_str());
  }
  std::puts("");
  Table kinds({"KIND", "FILES", "BYTES", "ON DISK", "IN MEMORY"}, 1);
  for (const auto& [name, k] : t.kinds) {
    kinds.add({name, std::to_string(k.files), human_bytes(k.file_bytes),
               human_bytes(k.allocated_bytes), human_bytes(k.unpacked_bytes)});
  }
  kinds.print();
  std::printf("\non disk in all   %s\n", human_bytes(t.directory_bytes).c_str());
  print_packing("packed by zstd", sum_packing(store.inspection(), Packing::zstd));
  print_packing("split and packed", sum_packing(store.inspection(), Packing::split));
  auto count = [](unsigned long long n) { return n; };
  std::printf("damaged          %llu (headers only; `cachectl verify` reads every byte)\n",
              count(t.damaged_files));
  std::printf("foreign          %llu\n", count(t.unknown_files));
  std::printf("sealed           %s, %s (with another key than --key-file's)\n",
              counted(t.other_key_files, "file").c_str(), human_bytes(t.other_key_bytes).c_str());
  std::printf("temporary        %zu\n", store.inspection().temporary.size());
  const auto& quarantined = store.inspection().quarantined;
  std::printf("quarantine       %s, %s\n", counted(quarantined.size(), "file").c_str(),
              human_bytes(allocated_bytes(quarantined)).c_str());
}

}  // namespace

Exit run_stats(const Request& request) {
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  if (request.json) {
    print_json(stats_json(*store));
  } else {
    print_stats(*store);
  }
  remark_sealed(store->inspection());
  return Exit::ok;
}

}  // namespace kv::cachectl
