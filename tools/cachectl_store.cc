// The files of a store put together.
#include "tools/cachectl_store.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "codec/plan.h"
#include "proto/identity.h"

namespace kv::cachectl {
namespace {

// Widths of codes, a bit each.
struct Widths {
  uint64_t k = 0, v = 0;

  void add(const Plane& plane) {
    const uint64_t bit = uint64_t{1} << std::min<uint8_t>(coding_word(plane), 63);
    if (plane.side != Side::v) k |= bit;
    if (plane.side != Side::k) v |= bit;
  }
};

// The widest first.
std::string joined(uint64_t widths) {
  std::string text;
  for (int b = 63; b >= 0; --b) {
    if ((widths >> b & 1) == 0) continue;
    text += (text.empty() ? "" : "+") + coding_name(static_cast<uint8_t>(b));
  }
  return text.empty() ? "-" : text;
}

void run_on_all_processors(uint32_t count, const std::function<void(uint32_t)>& work) {
  std::atomic<uint32_t> next{0};
  auto take = [&] {
    for (uint32_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> threads(std::clamp(std::thread::hardware_concurrency(), 1u, count));
  for (std::jthread& thread : threads) thread = std::jthread(take);
}

}  // namespace

void for_each_index(size_t count, const std::function<void(size_t)>& work) {
  constexpr uint32_t kPieces = 64;
  run_on_all_processors(kPieces, [&](uint32_t n) {
    for (size_t i = count * n / kPieces; i < count * (n + 1) / kPieces; ++i) work(i);
  });
}

Result<size_t> find_entry(const std::vector<Entry>& entries, const std::string& id) {
  std::vector<size_t> found;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].leaf->name.id.hex().starts_with(id)) found.push_back(i);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return Status(StatusCode::not_found, "no stored sequence has the id " + id +
                                             ": expected one that `ls` names, or its beginning");
  }
  return invalid_argument("id " + id + ": " + std::to_string(found.size()) +
                          " sequences begin with it, expected one");
}

uint64_t fp16_bytes(const Object& object) {
  uint64_t bytes = 0;
  for (const auto& plane : object.planes) {
    bytes += uint64_t{plane.rows()} * plane.heads * plane.dim * dtype_bytes(DType::f16);
  }
  for (const auto& state : object.states) bytes += state.bytes.size();
  return bytes;
}

std::string codec_summary(const std::vector<const InspectedFile*>& files) {
  Widths seen;  // `other` planes are in both
  for (const auto* file : files) {
    if (file->kind == FileKind::tail && files.size() > 1) continue;  // mostly exact by design
    for (const auto& plane : file->header.planes) seen.add(plane);
  }
  return seen.k == seen.v ? joined(seen.k) : "K " + joined(seen.k) + " V " + joined(seen.v);
}

bool is_object(const InspectedFile& file) { return !is_record(file.kind); }

bool goes_on(const Object& parent, const Object& child) {
  return parent.end_token() == child.first_token && parent.first_token < child.first_token;
}

Result<std::unique_ptr<SsdTier>> own_store(const Request& request, SsdOptions options) {
  auto lock = posix_files().stat(request.directory + "/" + kLockFile);
  if (!lock.ok()) return invalid_argument(request.directory + " holds no store (no LOCK)");
  options.key = request.key;
  options.limit_bytes = UINT64_MAX / 2;  // the store's own limit is its daemon's to keep
  return SsdTier::open(request.directory, std::move(options));
}

Result<StoreView> StoreView::load(const Request& request) {
  KV_ASSIGN_OR_RETURN(Inspection inspection,
                      inspect_directory(request.directory, InspectDepth::headers, request.key.get(),
                                        posix_files(), run_on_all_processors));
  StoreView view;
  view.inspection_ = std::make_shared<const Inspection>(std::move(inspection));
  const size_t files = view.inspection_->files.size();
  view.by_id_.reserve(files);
  view.children_.reserve(files);
  for (const auto& file : view.inspection_->files) {
    if (file.status.ok()) view.add(file);
  }
  view.notes_ = read_notes(request);
  return view;
}

EntryWords StoreView::words_of(const InspectedFile& leaf) const {
  auto note = notes_.find(leaf.name);
  return note == notes_.end() ? EntryWords() : note->second.words;
}

void StoreView::add(const InspectedFile& file) {
  by_id_.emplace(file.name.id, &file);
  if (file.profile) profiles_[file.name.id] = file.profile;
  if (file.model) {
    auto& record = models_[file.name.id];
    if (!record || record->serial < file.model->serial) record = file.model;
  }
  if (is_object(file) && file.kind != FileKind::supplement) {
    children_.emplace(file.header.parent, &file);
    if (file.kind == FileKind::snapshot) snapshots_ = true;
  }
}

const InspectedFile* StoreView::object(const Id& id, FileKind kind) const {
  auto [begin, end] = by_id_.equal_range(id);
  auto found = std::find_if(begin, end, [&](auto& e) { return e.second->kind == kind; });
  return found == end ? nullptr : found->second;
}

const InspectedFile* StoreView::block(const Id& id) const { return object(id, FileKind::block); }

std::vector<const InspectedFile*> StoreView::with_id(const Id& id) const {
  std::vector<const InspectedFile*> out;
  auto [begin, end] = by_id_.equal_range(id);
  for (auto at = begin; at != end; ++at) out.push_back(at->second);
  std::sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->path < b->path; });
  return out;
}

std::shared_ptr<const ModelRecord> StoreView::model_of(const Object& object) const {
  auto found = models_.find(model_id(object.ns, object.fingerprint));
  return found == models_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<const ModelRecord>> StoreView::models() const {
  std::vector<std::shared_ptr<const ModelRecord>> all;
  for (const auto& [id, record] : models_) all.push_back(record);
  return all;
}

std::shared_ptr<const Profile> StoreView::profile(const Id& id) const {
  auto found = profiles_.find(id);
  return found == profiles_.end() ? nullptr : found->second;
}

std::string StoreView::model_name(const Object& object) const {
  auto record = model_of(object);
  if (record && !record->model.name.empty()) return record->model.name;
  return object.fingerprint.hex().substr(0, 12);
}

std::vector<const InspectedFile*> StoreView::path_to(const InspectedFile& file,
                                                     bool& complete) const {
  std::vector<const InspectedFile*> path{&file};
  // first_token falls with every step, so damaged or hostile files can't make this loop for ever.
  while (!path.back()->header.parent.is_zero()) {
    const Object& child = path.back()->header;
    const InspectedFile* parent = block(child.parent);
    if (parent == nullptr || !goes_on(parent->header, child)) break;
    path.push_back(parent);
  }
  const Object& first = path.back()->header;
  complete = first.parent.is_zero() && first.first_token == 0;
  std::reverse(path.begin(), path.end());
  return path;
}

/// A snapshot that no tail or block ends with: nothing else shows its sequence.
bool StoreView::stands_alone(const InspectedFile& snapshot) const {
  const Object& s = snapshot.header;
  if (s.tokens.empty()) return block(s.parent) == nullptr;
  const Realm realm{s.ns, s.fingerprint, s.profile};
  return object(block_id(realm, s.parent, s.tokens, s.extras, ObjectKind::tail), FileKind::tail) ==
         nullptr;
}

// The snapshot at the end of a block or tail; null: none. Its id follows from that one's fields, so
// that no list of a parent's many children is walked.
const InspectedFile* StoreView::snapshot_at(const InspectedFile& leaf) const {
  if (!snapshots_ || leaf.kind == FileKind::snapshot) return nullptr;
  const Object& l = leaf.header;
  const Realm realm{l.ns, l.fingerprint, l.profile};
  const Id id = leaf.kind == FileKind::block ? snapshot_id(realm, leaf.name.id, {}, {})
                                             : snapshot_id(realm, l.parent, l.tokens, l.extras);
  return object(id, FileKind::snapshot);
}

std::vector<const InspectedFile*> StoreView::children_of(const Id& id) const {
  std::vector<const InspectedFile*> out;
  auto [begin, end] = children_.equal_range(id);
  for (auto at = begin; at != end; ++at) out.push_back(at->second);
  return out;
}

std::vector<const InspectedFile*> StoreView::entry_files(const InspectedFile& step) const {
  std::vector<const InspectedFile*> files = with_id(step.name.id);
  if (const InspectedFile* snapshot = snapshot_at(step)) files.push_back(snapshot);
  return files;
}

Entry StoreView::entry_of(const InspectedFile& leaf) const {
  Entry entry;
  entry.leaf = &leaf;
  entry.path = path_to(leaf, entry.complete);
  for (const auto* step : entry.path) {
    for (const auto* file : with_id(step->name.id)) entry.files.push_back(file);
  }
  if (const InspectedFile* snapshot = snapshot_at(leaf)) entry.files.push_back(snapshot);
  for (const auto* file : entry.files) {
    entry.stored_bytes += file->file_bytes;
    entry.fp16_bytes += fp16_bytes(file->header);
  }
  return entry;
}

// The last object of a sequence.
bool StoreView::is_leaf(const InspectedFile& file) const {
  if (!file.status.ok() || !is_object(file) || file.kind == FileKind::supplement) return false;
  if (file.kind == FileKind::snapshot) return stands_alone(file);
  if (file.kind != FileKind::block) return true;
  auto [begin, end] = children_.equal_range(file.name.id);
  return std::none_of(begin, end, [&](auto& e) {
    return e.second->kind != FileKind::snapshot || stands_alone(*e.second);
  });
}

std::vector<Entry> StoreView::entries() const {
  const auto& files = inspection_->files;
  std::vector<uint8_t> leaf(files.size());
  for_each_index(files.size(), [&](size_t i) { leaf[i] = is_leaf(files[i]) ? 1 : 0; });
  std::vector<const InspectedFile*> leaves;
  for (size_t i = 0; i < files.size(); ++i) {
    if (leaf[i] != 0) leaves.push_back(&files[i]);
  }
  std::vector<Entry> out(leaves.size());
  for_each_index(out.size(), [&](size_t i) { out[i] = entry_of(*leaves[i]); });
  auto before = [](const Entry& a, const Entry& b) {
    const Object &x = a.leaf->header, &y = b.leaf->header;
    return std::tie(x.ns, x.fingerprint, x.name.id) < std::tie(y.ns, y.fingerprint, y.name.id);
  };
  if (!std::is_sorted(out.begin(), out.end(), before)) {
    std::stable_sort(out.begin(), out.end(), before);
  }
  return out;
}

}  // namespace kv::cachectl
