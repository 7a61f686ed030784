// Promises by key.
#include "cachesvc/daemon/resp_holds.h"

#include "proto/keyed.h"

namespace kv {

// A lookup tells where nothing more can be held.
void RespHolds::find(uint64_t session, const QueryRequest& query, Deadline deadline,
                     std::function<void(Result<bool>)> done) {
  HoldRequest request{query.model, query.query, query.profile, kRespHoldTime};
  core_.hold(session, std::move(request), deadline,
             [this, session, query, deadline, done = std::move(done)](Result<HoldReply> hold) {
               const Key& key = query.query.tokens;
               if (hold.ok()) {
                 if (hold->number != 0) promise(session, key, hold->number, deadline);
                 return done(hold->found.tokens == kKeyedTokens);
               }
               core_.lookup(session, query, deadline,
                            [this, session, key, deadline, done](Result<LookupReply> reply) {
                              if (!reply.ok()) return done(reply.status());
                              const bool found = reply->tokens == kKeyedTokens;
                              if (found) promise(session, key, 0, deadline);
                              done(found);
                            });
             });
}

void RespHolds::promise(uint64_t session, const Key& key, uint64_t hold, Deadline deadline) {
  end(session, key, deadline);
  if (promises_.size() >= kMaxRespHolds) return release(session, hold, deadline);
  promises_[key] = {hold, Clock::now() + kRespHoldTime, by_end_.insert(by_end_.end(), key)};
}

bool RespHolds::end(uint64_t session, const std::vector<Token>& tokens, Deadline deadline) {
  while (!by_end_.empty()) {  // holds end by themselves then
    auto first = promises_.find(by_end_.front());
    if (first->second.until > Clock::now()) break;
    forget(first);
  }
  auto it = promises_.find(tokens);
  if (it == promises_.end()) return false;
  release(session, it->second.hold, deadline);
  forget(it);
  return true;
}

void RespHolds::forget(Promises::iterator promise) {
  by_end_.erase(promise->second.place);
  promises_.erase(promise);
}

void RespHolds::release(uint64_t session, uint64_t hold, Deadline deadline) {
  if (hold != 0) core_.release(session, hold, deadline, [](const Status&) {});
}

}  // namespace kv
