// OpenPlan: the decisions of one open: its profile, its memory, the records to write. Planned on
// the loop by names and ids; made by a worker.
#pragma once

#include <optional>

#include "cachesvc/core/models.h"

namespace kv {

struct OpenPlan {
  std::string ns;
  std::shared_ptr<const ModelSpec> spec;
  PrefillMode prefill = PrefillMode::exact;
  CodingSettings settings;
  std::shared_ptr<const Profile> profile;  ///< null: the plain one
  std::optional<RestingModel> resting;     ///< its profile comes into force if it can be read
  bool is_new = false;                     ///< not open, not resting, nothing stored
  Id in_force;                             ///< zero: none
  bool records_durable = false;            ///< the records of the profile in force
  bool write_records = false;              ///< write them once the model is made
  uint64_t serial = 0;
  uint64_t bytes = 0, making_bytes = 0;  ///< memory of the model, and more while it is made
  uint64_t most_put_bytes = 0;
  bool shared = false;                   ///< there is a shared tier
  bool adopt = false;                    ///< its profile is asked for, whatever is in force
  std::shared_ptr<const Profile> fleet;  ///< comes into force if it fits; null: not known

  bool asks_fleet() const { return shared && (is_new || resting || adopt); }
  void take_fleet(std::shared_ptr<const Profile> theirs);
};
/// Loop. The cost grows with the model by one comparison only. Takes profile and model out of
/// `request`. Returns: invalid_argument.
Result<OpenPlan> plan_open(const Env& env, const Models& models, const std::string& ns,
                           OpenRequest& request);

struct OwnProfile {
  std::shared_ptr<const Profile> profile;
  bool rested = false;
};
/// Worker. The profile that comes into force unless the fleet has one. Returns: as make_open.
Result<OwnProfile> own_profile(const OpenPlan& plan, SsdTier* ssd);

struct OpenMade {
  std::shared_ptr<CodedModel> coded;
  Charge making;        ///< the unused part of the charge
  bool rested = false;  ///< true: under the profile that rested
};
/// Worker. Returns: invalid_argument, unsupported naming what the profile or the model lacks; a
/// block that no put could bring is refused with its bytes.
Result<OpenMade> make_open(const OpenPlan& plan, SsdTier* ssd, Charge charge);

}  // namespace kv
