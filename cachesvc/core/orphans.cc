// The list of orphans.
#include "cachesvc/core/orphans.h"

#include <algorithm>

namespace kv {

void Orphans::forget(const Record& record) {
  auto [it, end] = by_parent_.equal_range(record.orphan->header.parent);
  while (it != end && it->second != &record) ++it;
  KV_CHECK(it != end);
  by_parent_.erase(it);
}

std::vector<Record*> Orphans::children_of(const Id& parent) const {
  std::vector<Record*> out;
  auto [it, end] = by_parent_.equal_range(parent);
  for (; it != end; ++it) out.push_back(it->second);
  return out;
}

std::vector<Record*> Orphans::of(const std::string& ns, const Id& fingerprint) const {
  std::vector<Record*> out;
  for (const auto& [parent, record] : by_parent_) {
    const Object& o = record->orphan->header;
    if (o.ns == ns && o.fingerprint == fingerprint) out.push_back(record);
  }
  return out;
}

bool Orphans::has(const std::string& ns, const Id& fingerprint, const Id& but) const {
  return std::any_of(by_parent_.begin(), by_parent_.end(), [&](const auto& o) {
    const Object& header = o.second->orphan->header;
    return header.ns == ns && header.fingerprint == fingerprint && header.profile != but;
  });
}

bool Orphans::names_profile(const Id& profile) const {
  return std::any_of(by_parent_.begin(), by_parent_.end(),
                     [&](const auto& o) { return o.second->orphan->header.profile == profile; });
}

}  // namespace kv
