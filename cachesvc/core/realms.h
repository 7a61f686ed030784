// Realms: the set of all realms. Loop thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/core/realm_state.h"

namespace kv {

class Realms {
 public:
  /// The realm, made if it is new. A caller that adds to it later holds it meanwhile.
  std::shared_ptr<RealmState> get(const Realm& realm, ShareId share,
                                  std::shared_ptr<const ModelSpec> model,
                                  std::shared_ptr<const Profile> profile);
  RealmState* find(const Realm& realm);
  RealmState* by_number(uint64_t index);  ///< RealmState::index; null: the realm is gone
  /// Realms of a model, in any profile.
  std::vector<std::shared_ptr<RealmState>> of(const std::string& ns, const Id& fingerprint);
  bool names_profile(const Id& profile) const;
  /// Forgets realms that hold nothing and that nobody else holds. Returns: the ids of their
  /// profiles.
  std::vector<Id> release();
  /// All realms, in the order of their numbers.
  const std::vector<std::shared_ptr<RealmState>>& all() const { return realms_; }

 private:
  std::vector<std::shared_ptr<RealmState>> realms_;
  uint32_t next_ = 0;  // below 2^31: in the upper half of its nodes' keys
};

}  // namespace kv
