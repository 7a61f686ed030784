// Plans of opens, and the workers' part.
#include "cachesvc/core/open_plan.h"

#include <algorithm>

#include "cachesvc/core/needs.h"
#include "codec/plan.h"

namespace kv {
namespace {

const char* to_text(PrefillMode mode) { return mode == PrefillMode::exact ? "exact" : "coded"; }

bool same_geometry(const ModelSpec& a, const ModelSpec& b) { return a.layers == b.layers; }

Status check_profile_bytes(const Profile& profile) {
  uint64_t bytes = encoded_bytes(profile);
  if (bytes <= kMaxProfileBytes) return {};
  return invalid_argument("profile: " + std::to_string(bytes) + " bytes, expected at most " +
                          std::to_string(kMaxProfileBytes));
}

// The resting profile, read on a worker; null if it can't be read, or is for other layers.
std::shared_ptr<const Profile> resting_profile(SsdTier& ssd, const Id& id, const ModelSpec& spec) {
  auto read = ssd.read_profile(id);
  return read.ok() && validate(**read, spec).ok() ? *read : nullptr;
}

// Checks the smallest form in which a client may put a block: its codes, or exact rows if those are
// fewer bytes. A block that no put can bring would fail each store of the model.
Status check_block_bytes(const ModelSpec& spec, const Profile& profile, uint64_t most) {
  const uint32_t block = profile.block_tokens;
  Need need;
  need.first_row = (profile.exact_tokens + block - 1) / block * block;
  need.end_row = need.first_row + block;
  const uint64_t bytes = need_bytes(spec, profile, {}, need);
  if (bytes <= most) return {};
  return invalid_argument(
      "model " + spec.name + ": a block of " + std::to_string(block) + " tokens has " +
      std::to_string(bytes) + " bytes, a put may have " + std::to_string(most) +
      " (a frame of the wire, and RAM's staging share): expected fewer tokens a "
      "block (codec.block_tokens)");
}

// Checks that a profile may come into force.
Status check_fits(const OpenPlan& plan, const Profile& profile) {
  const ModelSpec& spec = *plan.spec;
  if (profile.prefill != plan.prefill) {
    return unsupported("model " + spec.name + " in namespace " + plan.ns +
                       ": the profile in force has prefill = " + to_text(profile.prefill) +
                       ", the engine is set to " + to_text(plan.prefill) +
                       "; use another namespace");
  }
  if (profile.block_tokens == 0 || profile.block_tokens > kMaxBlockTokens) {
    return invalid_argument("profile: block_tokens " + std::to_string(profile.block_tokens) +
                            " outside 1.." + std::to_string(kMaxBlockTokens));
  }
  KV_RETURN_IF_ERROR(validate(spec, profile.block_tokens));
  KV_RETURN_IF_ERROR(validate(profile, spec));
  return check_block_bytes(spec, profile, plan.most_put_bytes);
}

}  // namespace

void OpenPlan::take_fleet(std::shared_ptr<const Profile> theirs) {
  fleet = std::move(theirs);
  bytes = std::max(bytes, coded_model_bytes(*spec, fleet.get()));
  making_bytes = std::max(making_bytes, record_encoding_bytes(fleet.get()));
}

Result<OwnProfile> own_profile(const OpenPlan& plan, SsdTier* ssd) {
  const ModelSpec& spec = *plan.spec;
  OwnProfile own;
  if (plan.resting && ssd) own.profile = resting_profile(*ssd, plan.resting->profile, spec);
  own.rested = own.profile != nullptr;
  if (!own.profile) own.profile = plan.profile;
  if (!own.profile) {
    KV_RETURN_IF_ERROR(validate(spec, plan.settings.block_tokens));
    KV_ASSIGN_OR_RETURN(Profile plain, plain_profile(spec, plan.settings));
    own.profile = std::make_shared<const Profile>(std::move(plain));
  }
  KV_RETURN_IF_ERROR(check_fits(plan, *own.profile));
  return own;
}

// The fleet's profile where it fits, though the own one does not exist or is another.
Result<OpenMade> make_open(const OpenPlan& plan, SsdTier* ssd, Charge charge) {
  OwnProfile own;
  const Status fits = plan.fleet ? check_fits(plan, *plan.fleet) : Status();
  if (plan.fleet && fits.ok()) {
    own.profile = plan.fleet;
  } else if (plan.adopt) {
    return fits;
  } else {
    KV_ASSIGN_OR_RETURN(own, own_profile(plan, ssd));
  }
  OpenMade made;
  made.rested = own.rested;
  KV_ASSIGN_OR_RETURN(made.coded, make_coded_model(*plan.spec, *own.profile, charge));
  made.making = std::move(charge);
  return made;
}

// Plans on the loop: the cost grows with the model by one comparison only.
Result<OpenPlan> plan_open(const Env& env, const Models& models, const std::string& ns,
                           OpenRequest& request) {
  OpenPlan plan;
  plan.ns = ns;
  plan.prefill = request.prefill;
  plan.settings = env.options.coding;
  plan.settings.prefill = request.prefill;
  const Id fingerprint = request.model.fingerprint;
  const ModelState* known = models.find({ns, fingerprint});
  if (known && !same_geometry(*known->spec, request.model)) {
    return invalid_argument("model " + request.model.name +
                            ": other layers than stored under the same fingerprint");
  }
  plan.shared = env.options.remote.tier != nullptr;
  plan.adopt = request.replace && !request.profile;
  if (plan.adopt && !plan.shared) {
    return invalid_argument(
        "replace: the request brings no profile, and there is no shared tier to take one from");
  }
  if (request.profile) KV_RETURN_IF_ERROR(check_profile_bytes(*request.profile));
  if (known) {
    plan.serial = known->serial;
    plan.records_durable = known->records_durable;
    if (known->realm) plan.in_force = known->realm->realm.profile;
  } else if (const RestingModel* rests = models.resting({ns, fingerprint})) {
    plan.serial = rests->serial;
    if (!request.replace || plan.adopt) plan.resting = *rests;
  } else {
    plan.is_new = true;
  }
  if (known && known->realm && (!request.replace || plan.adopt)) {
    plan.profile = known->realm->profile;
  } else if (request.profile) {
    plan.profile = request.profile;
  } else if (auto made = env.options.profiles.find(fingerprint);
             made != env.options.profiles.end()) {
    Profile profile = *made->second;
    profile.block_tokens = env.options.coding.block_tokens;
    profile.prefill = request.prefill;
    plan.profile = std::make_shared<const Profile>(std::move(profile));
  }
  plan.spec = known ? known->spec : std::make_shared<const ModelSpec>(std::move(request.model));
  plan.bytes = coded_model_bytes(*plan.spec, plan.profile.get());
  if (plan.resting) plan.bytes += plan.resting->coded_bytes;
  plan.making_bytes = record_encoding_bytes(plan.profile.get());
  plan.most_put_bytes = std::min(env.options.max_put_bytes, env.pool->staging_limit_bytes());
  return plan;
}

}  // namespace kv
