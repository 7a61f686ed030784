// The list of orphans.
#include "cachesvc/core/orphans.h"

#include <algorithm>

namespace kv {

void Orphans::add(Record& record) {
  const Object& o = record.orphan->header;
  by_parent_.emplace(o.parent, &record);
  OfModel& model = by_model_[{o.ns, o.fingerprint}];
  model.orphans.emplace(record.key, &record);
  ++model.profiles[o.profile];
}

void Orphans::forget(const Record& record, EntryKey key) {
  const Object& o = record.orphan->header;
  auto [it, end] = by_parent_.equal_range(o.parent);
  while (it != end && it->second != &record) ++it;
  KV_CHECK(it != end);
  by_parent_.erase(it);
  auto model = by_model_.find({o.ns, o.fingerprint});
  KV_CHECK(model != by_model_.end() && model->second.orphans.erase(key) == 1);
  auto& profiles = model->second.profiles;
  if (--profiles.at(o.profile) == 0) profiles.erase(o.profile);
  if (profiles.empty()) by_model_.erase(model);
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
  const auto& orphans = model->second.orphans;
  auto it = orphans.upper_bound(after);
  for (; it != orphans.end() && out.size() < most; ++it) out.push_back(it->second);
  return out;
}

std::vector<Record*> Orphans::of(const std::string& ns, size_t most) const {
  std::vector<Record*> out;
  for (auto it = by_model_.lower_bound({ns, Id{}});
       it != by_model_.end() && it->first.first == ns && out.size() < most; ++it) {
    for (const auto& [key, record] : it->second.orphans) {
      if (out.size() == most) break;
      out.push_back(record);
    }
  }
  return out;
}

bool Orphans::has(const std::string& ns, const Id& fingerprint, const Id& but) const {
  auto model = by_model_.find({ns, fingerprint});
  if (model == by_model_.end()) return false;
  const auto& profiles = model->second.profiles;
  return profiles.size() > profiles.count(but);
}

bool Orphans::names_profile(const Id& profile) const {
  return std::any_of(by_model_.begin(), by_model_.end(),
                     [&](const auto& model) { return model.second.profiles.count(profile) > 0; });
}

}  // namespace kv
