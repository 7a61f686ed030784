// Questions for profiles, and what they say of the one in force.
#include "cachesvc/core/remote_profiles.h"

#include <algorithm>
#include <utility>

#include "cachesvc/core/to_loop.h"

namespace kv {
namespace {

constexpr auto kQuestionTime = std::chrono::milliseconds(250);
constexpr auto kSoon = std::chrono::milliseconds(100);  // after an open that did not ask
constexpr auto kAgain = std::chrono::seconds(2);        // where nobody answered

}  // namespace

RemoteProfiles::RemoteProfiles(Env& env, Models& models)
    : env_(env),
      models_(models),
      tier_(env.options.remote.tier),
      timer_(env.loop, env.handler([this] { look(); })) {}

void RemoteProfiles::agree(const Models::Key& model, std::shared_ptr<const Profile> own,
                           Clock::time_point deadline, Done done) {
  tier_->agree(remote_space(model.first), model.second, std::move(own),
               std::min(deadline, Clock::now() + kQuestionTime),
               to_loop<Result<RemoteProfile>>(env_, std::move(done)));
}

void RemoteProfiles::in_force(ModelState& model, const Result<RemoteProfile>* fleet) {
  if (!on()) return;
  if (fleet != nullptr) return judge(model, *fleet);
  if (model.fleet == FleetProfile::none) model.fleet = FleetProfile::unasked;
  look_within(kSoon);
}

// A profile there that this service can't read is another one.
void RemoteProfiles::judge(ModelState& model, const Result<RemoteProfile>& fleet) {
  FleetProfile now = FleetProfile::unheard;
  if (fleet.ok()) {
    now = fleet->id == model.realm->realm.profile ? FleetProfile::same : FleetProfile::other;
  } else if (fleet.status().code() == StatusCode::unsupported) {
    now = FleetProfile::other;
  }
  look_within(now == FleetProfile::unheard ? Clock::duration(kAgain)
                                           : Clock::duration(env_.options.remote.profile_check));
  if (std::exchange(model.fleet, now) == now) return;
  const auto text = [&] { return "model " + model.spec->name; };
  if (now == FleetProfile::other) env_.event(EventKind::profile_other, text);
  if (now == FleetProfile::unheard) {
    env_.event(EventKind::profile_unheard,
               [&] { return text() + ": " + fleet.status().message(); });
  }
}

void RemoteProfiles::look_within(Clock::duration time) {
  const auto at = Clock::now() + time;
  if (!timer_.armed() || *timer_.due() > at) timer_.arm_at(at);
}

// Asks for all models in force, one after another.
void RemoteProfiles::look() {
  if (looking_ || env_.draining()) return;
  looking_ = true;
  for (const auto& [key, model] : models_.all()) {
    if (model->coded) to_look_at_.push_back(key);
  }
  look_at_next();
}

void RemoteProfiles::look_at_next() {
  const ModelState* model = nullptr;
  Models::Key key;
  while (!model && !to_look_at_.empty()) {
    key = std::move(to_look_at_.back());
    to_look_at_.pop_back();
    model = models_.find(key);
    if (model && !model->coded) model = nullptr;
  }
  if (!model) {
    looking_ = false;
    if (count(FleetProfile::unasked) > 0) look_within(kSoon);  // opened meanwhile
    return;
  }
  agree(key, model->realm->profile, Clock::now() + kQuestionTime,
        [this, key, profile = model->realm->realm.profile](const Result<RemoteProfile>& fleet) {
          ModelState* now = models_.find(key);
          if (now && now->coded && now->realm->realm.profile == profile) judge(*now, fleet);
          look_at_next();
        });
}

size_t RemoteProfiles::count(FleetProfile what) const {
  size_t n = 0;
  for (const auto& [key, model] : models_.all()) n += model->coded && model->fleet == what;
  return n;
}

}  // namespace kv
