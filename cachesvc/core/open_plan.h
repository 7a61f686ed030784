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
};
/// Loop. The cost grows with the model by one comparison only. Takes profile and model out of
/// `request`. Returns: invalid_argument.
Result<OpenPlan> plan_open(const Env& env, const Models& models, const std::string& ns,
                           OpenRequest& request);

struct OpenMade {
  std::shared_ptr<CodedModel> coded;
  Charge making;        ///< the unused part of the charge
  bool rested = false;  ///< true: under the profile that rested
};
/// Worker. Returns: invalid_argument, unsupported naming what the profile or the model lacks; a
/// block that no put could bring is refused with its bytes.
Result<OpenMade> make_open(const OpenPlan& plan, SsdTier* ssd, Charge charge);

}  // namespace kv
