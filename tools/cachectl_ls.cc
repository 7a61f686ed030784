// cachectl ls: the stored sequences of a directory, or its files.
#include <algorithm>

#include "proto/request_record.h"
#include "proto/unix_ms.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"
#include "tools/cachectl_totals.h"

namespace kv::cachectl {
namespace {

constexpr size_t kShownIdDigits = 16;  // enough to be unique in any store that fits a disk

std::string short_id(const Id& id) { return id.hex().substr(0, kShownIdDigits); }

int64_t written_ms(const Entry& e) { return e.leaf->modified_ns / 1'000'000; }

// "12 s": since the entry's last object was written.
std::string age(const Entry& e, int64_t now_ms) {
  return time_words(static_cast<uint64_t>(std::max<int64_t>(now_ms - written_ms(e), 0)));
}

Json entry_json(const StoreView& store, const Entry& e, const FileUsers& users) {
  const Object& leaf = e.leaf->header;
  return {{"id", leaf.name.id.hex()},
          {"kind", to_string(e.leaf->kind)},
          {"model", store.model_name(leaf)},
          {"fingerprint", leaf.fingerprint.hex()},
          {"namespace", leaf.ns},
          {"profile", leaf.profile.hex()},
          {"tokens", leaf.end_token()},
          {"complete", e.complete},
          {"files", e.files.size()},
          {"stored_bytes", e.stored_bytes},
          {"shared_bytes", shared_bytes(e, users)},
          {"fp16_bytes", e.fp16_bytes},
          {"ratio", json_ratio(e.stored_bytes, e.fp16_bytes)},
          {"codec", codec_summary(e.files)},
          {"written_ms", written_ms(e)},
          {"prefill_ms", store.words_of(*e.leaf).prefill_ms},
          {"label", store.words_of(*e.leaf).label}};
}

std::string prefill_text(const EntryWords& words) {
  return words.prefill_ms == 0 ? "-" : std::to_string(words.prefill_ms) + " ms";
}

void print_totals(const StoreView& store, const std::vector<Entry>& entries,
                  const FileUsers& users) {
  const StoreTotals t = totals_of(store.inspection(), users);
  std::printf(
      "%s: %s of their own + %s shared (saves %s) + %s in other files + %s of catalog and "
      "folders = %s on disk\n",
      entries.size() == 1 ? "1 entry" : (std::to_string(entries.size()) + " entries").c_str(),
      human_bytes(t.unique).c_str(), human_bytes(t.shared).c_str(), human_bytes(t.saved).c_str(),
      human_bytes(t.others).c_str(), human_bytes(t.rest).c_str(),
      human_bytes(store.inspection().totals.directory_bytes).c_str());
}

// Entries of the request's namespace and model, in its order.
std::vector<Entry> chosen(const StoreView& store, const Request& request,
                          const std::vector<Entry>& all) {
  std::vector<Entry> out;
  for (const Entry& e : all) {
    const bool wanted =
        (request.ns.empty() || e.leaf->header.ns == request.ns) &&
        (request.model.empty() || store.model_name(e.leaf->header) == request.model);
    if (wanted) out.push_back(e);
  }
  auto by = [&](auto value) {
    std::stable_sort(out.begin(), out.end(),
                     [&](const Entry& a, const Entry& b) { return value(a) > value(b); });
  };
  if (request.sort == "tokens") by([](const Entry& e) { return e.leaf->header.end_token(); });
  if (request.sort == "bytes") by([](const Entry& e) { return e.stored_bytes; });
  if (request.sort == "written") by([](const Entry& e) { return e.leaf->modified_ns; });
  if (request.sort == "prefill") {
    by([&](const Entry& e) { return store.words_of(*e.leaf).prefill_ms; });
  }
  return out;
}

std::vector<std::string> entry_row(const StoreView& store, const Entry& e, const FileUsers& users,
                                   int64_t now_ms) {
  const Object& leaf = e.leaf->header;
  const EntryWords words = store.words_of(*e.leaf);
  return {short_id(leaf.name.id),
          to_string(e.leaf->kind),
          printable(store.model_name(leaf)),
          printable(leaf.ns),
          codec_summary(e.files),
          std::to_string(leaf.end_token()) + (e.complete ? "" : "*"),
          human_bytes(e.stored_bytes),
          human_bytes(shared_bytes(e, users)),
          human_ratio(e.stored_bytes, e.fp16_bytes),
          age(e, now_ms),
          prefill_text(words),
          printable(words.label)};
}

// Lines of all entries, made on all processors.
template <typename Line, typename Make>
std::vector<Line> lines_of(const std::vector<Entry>& entries, const Make& make) {
  std::vector<Line> lines(entries.size());
  for_each_index(lines.size(), [&](size_t i) { lines[i] = make(entries[i]); });
  return lines;
}

void list_entries(const StoreView& store, const Request& request) {
  const std::vector<Entry> all = store.entries();
  const FileUsers users = users_of(all);
  const auto now_ms = static_cast<int64_t>(unix_ms());
  const std::vector<Entry> shown = chosen(store, request, all);
  if (request.json) {
    return print_json(
        lines_of<Json>(shown, [&](const Entry& e) { return entry_json(store, e, users); }));
  }
  Table table({"ID", "KIND", "MODEL", "NAMESPACE", "CODEC", "TOKENS", "STORED", "SHARED", "OF FP16",
               "WRITTEN", "PREFILL", "LABEL"},
              5);
  using Row = std::vector<std::string>;
  for (Row& row :
       lines_of<Row>(shown, [&](const Entry& e) { return entry_row(store, e, users, now_ms); })) {
    table.add(std::move(row));
  }
  table.print();
  print_totals(store, all, users);
  const bool broken =
      std::any_of(shown.begin(), shown.end(), [](const Entry& e) { return !e.complete; });
  if (broken) std::puts("* a block before it is missing: not served until that one returns");
}

const char* status_word(const InspectedFile& f) {
  if (f.other_key) return "sealed";
  return f.status.ok() ? "ok" : to_string(f.status.code());
}

Json file_json(const InspectedFile& f) {
  Json out = {{"path", f.path},
              {"kind", to_string(f.kind)},
              {"id", f.name.id.hex()},
              {"status", status_word(f)},
              {"file_bytes", f.file_bytes},
              {"allocated_bytes", f.allocated_bytes}};
  if (!f.status.ok()) {
    out["reason"] = f.status.message();
    if (f.status.code() == StatusCode::unsupported && !f.other_key) {
      out["kind"] = out["id"] = nullptr;
    }
    return out;
  }
  if (!is_object(f)) return out;
  out["parent"] = f.header.parent.is_zero() ? Json(nullptr) : Json(f.header.parent.hex());
  out["namespace"] = f.header.ns;
  out["first_token"] = f.header.first_token;
  out["end_token"] = f.header.end_token();
  out["unpacked_bytes"] = f.unpacked_bytes;
  out["fp16_bytes"] = fp16_bytes(f.header);
  out["ratio"] = json_ratio(f.file_bytes, fp16_bytes(f.header));
  out["codec"] = codec_summary({&f});
  return out;
}

void list_files(const StoreView& store, bool json) {
  Json out = Json::array();
  Table table({"FILE", "KIND", "NAMESPACE", "CODEC", "TOKENS", "BYTES", "OF FP16"}, 4);
  for (const auto& f : store.inspection().files) {
    if (json) {
      out.push_back(file_json(f));
      continue;
    }
    std::string name = printable(f.path);
    if (!f.status.ok()) {
      table.add({name, status_word(f), "-", "-", "-", human_bytes(f.file_bytes), "-"});
    } else if (!is_object(f)) {
      table.add({name, to_string(f.kind), f.model ? printable(f.model->ns) : "-", "-", "-",
                 human_bytes(f.file_bytes), "-"});
    } else {
      table.add({name, to_string(f.kind), printable(f.header.ns), codec_summary({&f}),
                 std::to_string(f.header.first_token) + "-" + std::to_string(f.header.end_token()),
                 human_bytes(f.file_bytes), human_ratio(f.file_bytes, fp16_bytes(f.header))});
    }
  }
  if (json) return print_json(out);
  table.print();
}

}  // namespace

Exit run_ls(const Request& request) {
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  request.blocks ? list_files(*store, request.json) : list_entries(*store, request);
  if (uint64_t n = store->inspection().totals.damaged_files; n > 0) {
    std::fprintf(stderr, "cachectl: %s: see `cachectl verify`\n",
                 counted(n, "damaged file").c_str());
  }
  remark_sealed(store->inspection());
  return Exit::ok;
}

}  // namespace kv::cachectl
