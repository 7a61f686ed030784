// cachectl show: all about one object, found by the beginning of its id.
//
// Token ids stay hidden unless asked for: with the model's tokenizer they are the prompt.
#include <algorithm>
#include <set>

#include "tools/cachectl_coding.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

constexpr size_t kMaxCandidates = 20;  // listed for an ambiguous id

const char* name_of(PrefillMode mode) { return mode == PrefillMode::exact ? "exact" : "coded"; }

/// The files of one id, damaged ones included, and what belongs to them.
struct Shown {
  const InspectedFile* main = nullptr;      ///< block, tail or snapshot; null: not readable
  std::vector<const InspectedFile*> files;  ///< main and its supplements
  std::vector<const InspectedFile*> damaged;
  Entry entry;  ///< of main
  std::shared_ptr<const ModelRecord> record;
  std::shared_ptr<const Profile> profile;
  std::vector<PartReport> report;  ///< empty without record and profile
};

Json planes_json(const InspectedFile& file) {
  Json out = Json::array();
  for (size_t i = 0; i < file.header.planes.size(); ++i) {
    const Plane& p = file.header.planes[i];
    const Piece& piece = file.pieces[i];
    Json runs = Json::array();
    for (const auto& run : p.runs) {
      runs.push_back({{"form", to_string(run.form)}, {"rows", run.rows}});
    }
    out.push_back({{"layer", p.layer},
                   {"part", p.part},
                   {"side", to_string(p.side)},
                   {"dtype", to_string(p.dtype)},
                   {"bits", p.bits},
                   {"heads", p.heads},
                   {"dim", p.dim},
                   {"first_row", p.first_row},
                   {"rows", p.rows()},
                   {"runs", runs},
                   {"packing", to_string(piece.packing)},
                   {"unpacked_bytes", piece.unpacked_bytes},
                   {"stored_bytes", piece.bytes.size()}});
  }
  return out;
}

Json states_json(const InspectedFile& file) {
  Json out = Json::array();
  for (size_t i = 0; i < file.header.states.size(); ++i) {
    const StateBlob& s = file.header.states[i];
    const Piece& piece = file.pieces[file.header.planes.size() + i];
    out.push_back({{"layer", s.layer},
                   {"part", s.part},
                   {"packing", to_string(piece.packing)},
                   {"unpacked_bytes", piece.unpacked_bytes},
                   {"stored_bytes", piece.bytes.size()}});
  }
  return out;
}

Json profile_json(const Shown& s) {
  if (!s.profile) return nullptr;
  const Profile& p = *s.profile;
  return {{"codec_version", p.codec_version},
          {"block_tokens", p.block_tokens},
          {"prefill", name_of(p.prefill)},
          {"raw_dtype", to_string(p.raw_dtype)},
          {"rotation_seed", p.rotation_seed},
          {"codebook", p.codebook},
          {"exact_tokens", p.exact_tokens},
          {"requested_k", coding_name(p.requested_k_bits)},
          {"requested_v", coding_name(p.requested_v_bits)},
          {"parts", report_json(s.report)}};
}

Json show_json(const StoreView& store, const Shown& s, const Request& request) {
  const Object& o = s.main->header;
  Json path = Json::array(), files = Json::array();
  for (const auto* step : s.entry.path) {
    path.push_back({{"id", step->name.id.hex()},
                    {"kind", to_string(step->kind)},
                    {"first_token", step->header.first_token},
                    {"end_token", step->header.end_token()}});
  }
  for (const auto* f : s.files) {
    files.push_back({{"path", f->path},
                     {"kind", to_string(f->kind)},
                     {"file_bytes", f->file_bytes},
                     {"planes", planes_json(*f)},
                     {"states", states_json(*f)}});
  }
  Json extras = Json::array();
  for (const auto& e : o.extras) {
    extras.push_back({{"position", e.position}, {"bytes", e.bytes.size()}});
  }
  Json out = {{"id", o.name.id.hex()},
              {"kind", to_string(s.main->kind)},
              {"namespace", o.ns},
              {"model", store.model_name(o)},
              {"fingerprint", o.fingerprint.hex()},
              {"profile", o.profile.hex()},
              {"profile_in_force", s.record && s.record->profile == o.profile},
              {"parent", o.parent.is_zero() ? Json(nullptr) : Json(o.parent.hex())},
              {"first_token", o.first_token},
              {"end_token", o.end_token()},
              {"extras", extras},
              {"complete", s.entry.complete},
              {"path", path},
              {"path_stored_bytes", s.entry.stored_bytes},
              {"path_fp16_bytes", s.entry.fp16_bytes},
              {"files", files},
              {"coding", profile_json(s)}};
  const EntryWords words = store.words_of(*s.main);
  out["prefill_ms"] = words.prefill_ms;
  out["label"] = words.label;
  if (request.tokens) out["tokens"] = o.tokens;
  return out;
}

std::string range(uint32_t first, uint32_t end) {
  return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
}

void print_identity(const StoreView& store, const Shown& s) {
  const Object& o = s.main->header;
  auto line = [](const char* name, const std::string& value) {
    std::printf("%-12s %s\n", name, value.c_str());
  };
  line("id", o.name.id.hex());
  line("kind", to_string(s.main->kind));
  line("namespace", printable(o.ns));
  line("model", printable(store.model_name(o)) + "  " + o.fingerprint.hex());
  bool in_force = s.record && s.record->profile == o.profile;
  line("profile", o.profile.hex() + (in_force ? "" : "  (not in force)"));
  line("parent", o.parent.is_zero() ? "none: the root" : o.parent.hex());
  line("tokens", range(o.first_token, o.end_token()));
  if (!o.extras.empty()) line("extras", std::to_string(o.extras.size()));
  const EntryWords words = store.words_of(*s.main);
  if (!words.label.empty()) line("label", printable(words.label));
  if (words.prefill_ms > 0) line("prefill", std::to_string(words.prefill_ms) + " ms");
  line("path", counted(s.entry.path.size(), "object") + ", " + human_bytes(s.entry.stored_bytes) +
                   ", " + human_ratio(s.entry.stored_bytes, s.entry.fp16_bytes) + " of fp16" +
                   (s.entry.complete ? "" : "; the block before the first one is MISSING"));
  for (const auto* step : s.entry.path) {
    line("", step->name.id.hex() + "  " + to_string(step->kind) + " " +
                 range(step->header.first_token, step->header.end_token()));
  }
}

/// "exact 4, codes 252"
std::string runs_text(const Plane& plane) {
  std::string text;
  for (const auto& run : plane.runs) {
    if (!text.empty()) text += ", ";
    text += std::string(to_string(run.form)) + " " + std::to_string(run.rows);
  }
  return text;
}

void print_file(const InspectedFile& file) {
  std::printf("\n%s  %s\n", printable(file.path).c_str(), human_bytes(file.file_bytes).c_str());
  Table table({"LAYER", "PART", "SIDE", "DTYPE", "CODEC", "RUNS", "PACKING", "HEADS", "DIM",
               "BYTES", "STORED"},
              7);
  const auto& planes = file.header.planes;
  for (size_t i = 0; i < planes.size(); ++i) {
    const Plane& p = planes[i];
    const Piece& piece = file.pieces[i];
    table.add({std::to_string(p.layer), std::to_string(p.part), to_string(p.side),
               to_string(p.dtype), coding_name(coding_word(p)), runs_text(p),
               to_string(piece.packing), std::to_string(p.heads), std::to_string(p.dim),
               std::to_string(piece.unpacked_bytes), std::to_string(piece.bytes.size())});
  }
  for (size_t i = 0; i < file.header.states.size(); ++i) {
    const StateBlob& s = file.header.states[i];
    const Piece& piece = file.pieces[planes.size() + i];
    table.add({std::to_string(s.layer), std::to_string(s.part), "state", "-", "-", "-",
               to_string(piece.packing), "-", "-", std::to_string(piece.unpacked_bytes),
               std::to_string(piece.bytes.size())});
  }
  table.print();
}

void print_coding(const Shown& s) {
  if (!s.profile) {
    std::puts("\ncoding: the profile is not in this store");
    return;
  }
  const Profile& p = *s.profile;
  std::printf("\ncoding: blocks of %u tokens, first %u exact, raw %s, prefill %s, K %s, V %s\n",
              p.block_tokens, p.exact_tokens, to_string(p.raw_dtype), name_of(p.prefill),
              coding_name(p.requested_k_bits).c_str(), coding_name(p.requested_v_bits).c_str());
  if (s.report.empty()) std::puts("  no model record that fits it is in this store");
  for (const std::string& line : report_lines(s.report)) std::printf("  %s\n", line.c_str());
}

void print_shown(const StoreView& store, const Shown& s, const Request& request) {
  print_identity(store, s);
  if (request.tokens) {
    std::printf("%-12s", "token ids");
    for (Token t : s.main->header.tokens) std::printf(" %d", t);
    std::puts("");
  }
  for (const auto* file : s.files) print_file(*file);
  print_coding(s);
}

/// Ids of all objects, damaged ones included, that begin with `prefix`.
std::set<Id> matches(const StoreView& store, const std::string& prefix) {
  std::set<Id> ids;
  for (const auto& file : store.inspection().files) {
    bool named = file.status.code() != StatusCode::unsupported && is_object(file);
    if (named && file.name.id.hex().starts_with(prefix)) ids.insert(file.name.id);
  }
  return ids;
}

Shown collect(const StoreView& store, const Id& id) {
  Shown s;
  for (const auto& file : store.inspection().files) {
    if (file.name.id != id || !is_object(file) || file.status.code() == StatusCode::unsupported) {
      continue;
    }
    (file.status.ok() ? s.files : s.damaged).push_back(&file);
    if (file.status.ok() && (!s.main || s.main->kind == FileKind::supplement)) s.main = &file;
  }
  if (!s.main) return s;
  s.entry = store.entry_of(*s.main);
  s.record = store.model_of(s.main->header);
  s.profile = store.profile(s.main->header.profile);
  if (s.record && s.profile) s.report = coding_report(*s.record, *s.profile);
  return s;
}

Exit report_ambiguous(const StoreView& store, const std::set<Id>& ids) {
  std::fprintf(stderr, "cachectl: the id is ambiguous, %zu objects begin with it:\n", ids.size());
  size_t shown = 0;
  for (const Id& id : ids) {
    if (++shown > kMaxCandidates) {
      std::fputs("  …\n", stderr);
      break;
    }
    auto files = store.with_id(id);
    std::fprintf(stderr, "  %s  %s\n", id.hex().c_str(),
                 files.empty() ? "damaged" : to_string(files.front()->kind));
  }
  return Exit::usage;
}

}  // namespace

Exit run_show(const Request& request) {
  std::string prefix = request.id;
  for (char& c : prefix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (prefix.empty() || prefix.size() > 64 ||
      prefix.find_first_not_of("0123456789abcdef") != std::string::npos) {
    std::fputs("cachectl: ID must be 1 to 64 hex digits\n", stderr);
    return Exit::usage;
  }
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  std::set<Id> ids = matches(*store, prefix);
  if (ids.empty()) {
    std::fprintf(stderr, "cachectl: no object's id begins with %s\n", prefix.c_str());
    remark_sealed(store->inspection());
    return Exit::not_found;
  }
  if (ids.size() > 1) return report_ambiguous(*store, ids);
  Shown s = collect(*store, *ids.begin());
  for (const auto* file : s.damaged) {
    std::fprintf(stderr, "cachectl: damaged: %s: %s\n", printable(file->path).c_str(),
                 printable(file->status.message()).c_str());
  }
  if (s.main && request.json) print_json(show_json(*store, s, request));
  if (s.main && !request.json) print_shown(*store, s, request);
  return s.damaged.empty() ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
