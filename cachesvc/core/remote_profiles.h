// RemoteProfiles: the one profile that the machines of a shared tier have in force for a model.
// REMOTE.md, "Profiles".
//
// Opens ask it before a profile comes into force; later it looks now and then, for a tier that did
// not answer then, and so that the profile there does not expire. Whoever has another one in force
// goes on with it, and it is told once. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/core/models.h"
#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/shared_tier.h"

namespace kv {

class RemoteProfiles {
 public:
  using Done = std::function<void(Result<RemoteProfile>)>;

  RemoteProfiles(Env& env, Models& models);
  RemoteProfiles(const RemoteProfiles&) = delete;  // handlers point here
  RemoteProfiles& operator=(const RemoteProfiles&) = delete;

  bool on() const { return tier_ != nullptr; }
  /// Asks which profile the fleet has, and gives it `own`, if that is not null, if it has none.
  /// `done` follows in the time of one question, or at `deadline` if that is sooner.
  void agree(const Models::Key& model, std::shared_ptr<const Profile> own,
             Clock::time_point deadline, Done done);
  /// The model's profile has come into force. `fleet`: what agree() said; null: it was not asked.
  void in_force(ModelState& model, const Result<RemoteProfile>* fleet);
  /// Models in force whose profile the tier says so of.
  size_t count(FleetProfile what) const;

 private:
  void look();
  void look_at_next();
  void judge(ModelState& model, const Result<RemoteProfile>& fleet);
  void look_within(Clock::duration time);

  Env& env_;
  Models& models_;
  const std::shared_ptr<SharedTier> tier_;
  std::vector<Models::Key> to_look_at_;
  bool looking_ = false;
  Timer timer_;
};

}  // namespace kv
