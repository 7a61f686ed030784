// Calls: sessions, and the calls under way. A session is one client, bound to one namespace; each
// of its calls is answered exactly once, at the latest by its deadline, the session's end or the
// core's; before, if the session cancels it by its tag. Loop thread only.
#pragma once

#include <map>
#include <set>

#include "cachesvc/core/call.h"
#include "cachesvc/core/env.h"
#include "cachesvc/core/model_state.h"
#include "cachesvc/namespace_options.h"

namespace kv {

struct SessionState {
  std::string ns;
  Right right = Right::all;
  ShareId share = kCommonShare;
  std::vector<std::shared_ptr<ModelState>> models;  ///< handle - 1
  std::vector<Id> profiles;                         ///< handle - 1: those of the last open
};

/// Returns: profile_changed with both names, or ok.
Status check_profile(const Id& asked, const Id& in_force);

class Calls {
 public:
  explicit Calls(Env& env) : env_(env), uses_(env.namespaces.count()) {}
  Calls(const Calls&) = delete;  // calls point here
  Calls& operator=(const Calls&) = delete;

  /// Returns: what CacheCore::connect returns.
  Result<uint64_t> connect(const std::string& ns, Right right = Right::all);
  /// Ends the session; its waiting calls get `unavailable`.
  void disconnect(uint64_t session);
  SessionState* session(uint64_t id);  ///< null: there is none
  /// The session has opened the model, under the profile in force. Returns: its handle.
  uint32_t opened(uint64_t session, const std::shared_ptr<ModelState>& model);
  /// The same for a model of the session's namespace that is in use, by its name. Returns:
  /// not_found, invalid_argument (several have the name).
  Result<uint32_t> attach(uint64_t session, const std::string& name,
                          const std::vector<std::shared_ptr<ModelState>>& in_use);
  /// Returns: not_found (session), invalid_argument (handle).
  Result<std::shared_ptr<ModelState>> model(uint64_t session, uint32_t handle);
  /// The model under `profile` (zero: that of the handle's last open). Also profile_changed:
  /// another one is in force.
  Result<std::shared_ptr<ModelState>> model(uint64_t session, uint32_t handle, const Id& profile);

  /// A call of the session. The call has ended already if it can't be kept: too many calls, or too
  /// late.
  template <typename T>
  std::shared_ptr<Call<T>> begin(uint64_t session, CallTerms terms, std::function<void(T)> done) {
    auto call = std::make_shared<Call<T>>(std::move(done));
    add(session, call, terms);
    return call;
  }
  /// Answers the session's calls of this tag that still wait with `cancelled`.
  void cancel(uint64_t session, uint64_t tag);
  /// Ends every call under way with `unavailable`.
  void end_all(const char* why);

  size_t sessions() const { return sessions_.size(); }
  size_t sessions_of(const std::string& ns) const;
  template <typename Look>
  void each_namespace(Look look) const {  ///< once for each session
    for (const auto& [id, session] : sessions_) look(session.ns);
  }
  size_t under_way() const { return calls_.size(); }
  /// Sessions and calls under way of a namespace with a quota.
  struct Use {
    uint32_t sessions = 0, calls = 0;
  };
  const Use& use(ShareId share) const { return uses_[share]; }
  void check_invariants() const;

 private:
  Status room_for(const SessionState* session) const;
  void add(uint64_t session, std::shared_ptr<CallBase> call, CallTerms terms);
  template <typename Which>
  void fail_each(Which which, const Status& status);

  Env& env_;
  std::map<uint64_t, SessionState> sessions_;
  uint64_t next_session_ = 1;
  std::vector<Use> uses_;  // by ShareId
  std::map<CallBase*, std::weak_ptr<CallBase>> calls_;
};

}  // namespace kv
