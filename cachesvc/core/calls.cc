// Sessions and calls under way.
#include "cachesvc/core/calls.h"

#include <algorithm>
#include <new>

namespace kv {

Result<uint64_t> Calls::connect(const std::string& ns, Right right) {
  if (env_.draining()) return Status(StatusCode::unavailable, "the cache is draining");
  if (ns.empty() || ns.size() > kMaxNamespaceBytes) {
    return invalid_argument("namespace of " + std::to_string(ns.size()) + " bytes outside 1.." +
                            std::to_string(kMaxNamespaceBytes));
  }
  if (sessions_.size() >= env_.options.max_sessions) {
    ++env_.count.busy;
    return Status(StatusCode::busy,
                  "max_sessions " + std::to_string(env_.options.max_sessions) + " reached");
  }
  const ShareId share = env_.namespaces.share(ns);
  KV_RETURN_IF_ERROR(
      env_.one_more(ns, "connections", &NamespaceQuota::connections, uses_[share].sessions));
  ++uses_[share].sessions;
  uint64_t id = next_session_++;
  SessionState& session = sessions_[id];
  session.ns = ns;
  session.right = right;
  session.share = share;
  return id;
}

size_t Calls::sessions_of(const std::string& ns) const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& session) { return session.second.ns == ns; }));
}

void Calls::disconnect(uint64_t session) {
  auto ended = sessions_.find(session);
  if (ended == sessions_.end()) return;
  --uses_[ended->second.share].sessions;
  sessions_.erase(ended);
  fail_each([session](const CallBase& call) { return call.session == session; },
            {StatusCode::unavailable, "the session was closed"});
}

// The search goes on behind the call just ended, as its callback may change the list.
template <typename Which>
void Calls::fail_each(Which which, const Status& status) {
  for (auto at = calls_.begin(); at != calls_.end();) {
    CallBase* key = at->first;
    auto call = at->second.lock();
    if (call && which(*call)) {
      call->cancelled = status.code() == StatusCode::cancelled;
      call->fail(status);
      at = calls_.upper_bound(key);
    } else {
      ++at;
    }
  }
}

void Calls::cancel(uint64_t session, uint64_t tag) {
  const auto which = [session, tag](const CallBase& call) {
    return call.session == session && call.tag == tag;
  };
  fail_each(which, {StatusCode::cancelled, "cancelled by its client"});
  env_.progress();  // a commit or an erase may wait for its turn
}

SessionState* Calls::session(uint64_t id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

uint32_t Calls::opened(uint64_t session, const std::shared_ptr<ModelState>& model) {
  SessionState& state = sessions_.at(session);
  auto at = std::find(state.models.begin(), state.models.end(), model);
  const auto handle = static_cast<uint32_t>(at - state.models.begin()) + 1;
  if (at == state.models.end()) state.models.push_back(model);
  state.profiles.resize(state.models.size());
  state.profiles[handle - 1] = model->realm->realm.profile;
  return handle;
}

Result<uint32_t> Calls::attach(uint64_t session, const std::string& name,
                               const std::vector<std::shared_ptr<ModelState>>& in_use) {
  const SessionState* state = this->session(session);
  if (!state) return Status(StatusCode::not_found, "no such session");
  std::shared_ptr<ModelState> found;
  for (const auto& model : in_use) {
    if (model->ns != state->ns || model->spec->name != name || !model->realm) continue;
    if (found) {
      return invalid_argument("namespace \"" + state->ns + "\" has several models \"" + name +
                              "\", of different weights");
    }
    found = model;
  }
  if (found) return opened(session, found);
  return Status(StatusCode::not_found,
                "namespace \"" + state->ns + "\" has no model \"" + name + "\"");
}

Result<std::shared_ptr<ModelState>> Calls::model(uint64_t session, uint32_t handle) {
  SessionState* state = this->session(session);
  if (!state) return Status(StatusCode::not_found, "no such session");
  if (handle == 0 || handle > state->models.size()) {
    return invalid_argument("model handle " + std::to_string(handle) + " was not opened");
  }
  return state->models[handle - 1];
}

Status check_profile(const Id& asked, const Id& in_force) {
  if (asked == in_force) return {};
  return {StatusCode::profile_changed,
          "profile " + asked.hex() + " was asked for, in force is " + in_force.hex()};
}

Result<std::shared_ptr<ModelState>> Calls::model(uint64_t session, uint32_t handle,
                                                 const Id& profile) {
  KV_ASSIGN_OR_RETURN(auto state, model(session, handle));
  const Id& asked = profile.is_zero() ? sessions_[session].profiles[handle - 1] : profile;
  KV_RETURN_IF_ERROR(check_profile(asked, state->realm->realm.profile));
  return state;
}

// Returns: ok if the session (null: none) may have one more call under way.
Status Calls::room_for(const SessionState* session) const {
  if (calls_.size() >= env_.options.max_waiting_calls) {
    ++env_.count.busy;
    return {StatusCode::busy, "max_waiting_calls reached"};
  }
  if (session == nullptr) return {};
  return env_.one_more(session->ns, "requests", &NamespaceQuota::requests,
                       uses_[session->share].calls);
}

void Calls::check_invariants() const {
  std::vector<Use> sums(uses_.size());
  for (const auto& [id, session] : sessions_) ++sums[session.share].sessions;
  for (ShareId share = 0; share < sums.size(); ++share) {
    KV_CHECK(sums[share].sessions == uses_[share].sessions);
  }
}

void Calls::add(uint64_t session, std::shared_ptr<CallBase> call, CallTerms terms) {
  call->session = session;
  call->tag = terms.tag;
  if (env_.closed()) return call->fail({StatusCode::unavailable, "the cache has ended"});
  auto known = sessions_.find(session);
  const SessionState* state = known == sessions_.end() ? nullptr : &known->second;
  if (Status full = room_for(state); !full.ok()) return call->fail(full);
  if (terms.deadline <= Clock::now()) {
    return call->fail(
        {StatusCode::deadline_exceeded, "the deadline had passed when the call came"});
  }
  call->deadline = terms.deadline;
  call->timer =
      std::make_unique<Timer>(env_.loop, env_.handler([weak = std::weak_ptr<CallBase>(call)] {
        auto waiting = weak.lock();
        if (waiting) waiting->fail({StatusCode::deadline_exceeded, "the call's deadline passed"});
      }));
  call->timer->arm_at(call->deadline);
  calls_[call.get()] = call;
  const ShareId share = state ? state->share : kCommonShare;
  ++uses_[share].calls;
  call->on_finish = [this, share](CallBase* ended) {
    --uses_[share].calls;
    calls_.erase(ended);
  };
}

// A callback that finds no memory has ended; the others are answered all the same.
void Calls::end_all(const char* why) {
  while (!calls_.empty()) {
    auto call = calls_.begin()->second.lock();
    if (!call) {
      calls_.erase(calls_.begin());
      continue;
    }
    try {
      call->fail({StatusCode::unavailable, why});
    } catch (const std::bad_alloc&) {
      calls_.erase(call.get());
    }
  }
}

}  // namespace kv
