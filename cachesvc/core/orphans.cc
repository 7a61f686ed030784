// The list of orphans.
#include "cachesvc/core/orphans.h"

#include <algorithm>

namespace kv {

void Orphans::add(Record& record) {
  const Object& o = record.orphan->header;
  by_parent_.emplace(o.parent, &record);
  by_model_[{o.ns, o.fingerprint}].emplace(record.key, &record);
}

void Orphans::forget(const Record& record, EntryKey key) {
  const Object& o = record.orphan->header;
  auto [it, end] = by_parent_.equal_range(o.parent);
  while (it != end && it->second != &record) ++it;
  KV_CHECK(it != end);
  by_parent_.erase(it);
  auto model = by_model_.find({o.ns, o.fingerprint});
  KV_CHECK(model != by_model_.end() && model->second.erase(key) == 1);
  if (model->second.empty()) by_model_.erase(model);
}

std::vector<Record*> Orphans::children_of(const Id& parent) const {
  std::vector<Record*> out;
  auto [it, end] = by_parent_.equal_range(parent);
  for (; it != end; ++it) out.push_back(it->second);
  return out;
}

std::vector<Record*> Orphans::of(const std::string& ns, const Id& fingerprint, EntryKey after,
                                 size_t most) const {
  std::vector<Record*> out;
  auto model = by_model_.find({ns, fingerprint});
  if (model == by_model_.end()) return out;
  auto it = model->second.upper_bound(after);
  for (; it != model->second.end() && out.size() < most; ++it) out.push_back(it->second);
  return out;
}

std::vector<Record*> Orphans::of(const std::string& ns, size_t most) const {
  std::vector<Record*> out;
  for (auto it = by_model_.lower_bound({ns, Id{}});
       it != by_model_.end() && it->first.first == ns && out.size() < most; ++it) {
    for (auto o = it->second.begin(); o != it->second.end() && out.size() < most; ++o) {
      out.push_back(o->second);
    }
  }
  return out;
}

bool Orphans::has(const std::string& ns, const Id& fingerprint, const Id& but) const {
  auto model = by_model_.find({ns, fingerprint});
  return model != by_model_.end() &&
         std::any_of(model->second.begin(), model->second.end(),
                     [&](const auto& o) { return o.second->orphan->header.profile != but; });
}

bool Orphans::names_profile(const Id& profile) const {
  return std::any_of(by_parent_.begin(), by_parent_.end(),
                     [&](const auto& o) { return o.second->orphan->header.profile == profile; });
}

}  // namespace kv
