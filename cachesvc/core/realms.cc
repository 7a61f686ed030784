// The list of realms.
#include "cachesvc/core/realms.h"

#include <algorithm>

namespace kv {

std::shared_ptr<RealmState> Realms::get(const Realm& realm, ShareId share,
                                        std::shared_ptr<const ModelSpec> model,
                                        std::shared_ptr<const Profile> profile) {
  for (auto& r : realms_) {
    if (r->realm == realm) return r;
  }
  realms_.push_back(
      std::make_shared<RealmState>(realm, share, next_, std::move(model), std::move(profile)));
  ++next_;
  return realms_.back();
}

RealmState* Realms::find(const Realm& realm) {
  for (auto& r : realms_) {
    if (r->realm == realm) return r.get();
  }
  return nullptr;
}

RealmState* Realms::by_number(uint64_t index) {
  auto at = std::lower_bound(realms_.begin(), realms_.end(), index,
                             [](const auto& r, uint64_t number) { return r->index < number; });
  return at != realms_.end() && (*at)->index == index ? at->get() : nullptr;
}

std::vector<std::shared_ptr<RealmState>> Realms::of(const std::string& ns, const Id& fingerprint) {
  std::vector<std::shared_ptr<RealmState>> out;
  for (auto& r : realms_) {
    if (r->realm.ns == ns && r->realm.fingerprint == fingerprint) out.push_back(r);
  }
  return out;
}

bool Realms::names_profile(const Id& profile) const {
  return std::any_of(realms_.begin(), realms_.end(),
                     [&](const auto& r) { return r->realm.profile == profile; });
}

std::vector<Id> Realms::release() {
  std::vector<Id> profiles;
  std::erase_if(realms_, [&](const std::shared_ptr<RealmState>& r) {
    if (r.use_count() > 1 || !r->empty()) return false;
    profiles.push_back(r->realm.profile);
    return true;
  });
  return profiles;
}

}  // namespace kv
