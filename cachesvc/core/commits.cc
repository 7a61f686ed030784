// Commits: their row copies, and their turns.
#include "cachesvc/core/commits.h"

#include "cachesvc/core/row_copies.h"

namespace kv {

// The reservation ends with the commit, however that ends.
void Commits::commit(uint64_t session, uint64_t id, Durability wait_for, CallTerms terms,
                     std::function<void(Result<CommitReply>)> done) {
  Reservation* r = reservations_.find(session, id);
  auto call = calls_.begin<Result<CommitReply>>(session, terms, std::move(done));
  if (!r) return call->fail({StatusCode::not_found, "no such reservation"});
  if (call->finished()) return reservations_.end(id);
  copy_rows(*r, terms.deadline);
  Waiting commit{session, id, wait_for, std::move(call)};
  if (may_publish(commit)) return publish(commit);
  waiting_.push_back(std::move(commit));
}

// Puts the row copies. A row that can't be copied now stays where it is: the commit checks
// coverage.
void Commits::copy_rows(Reservation& r, Deadline deadline) {
  const uint64_t session = r.session, id = r.id;
  for (CopyPut& copy : row_copies(index_, r)) {
    Reservation* still = reservations_.find(session, id);
    if (!still || !identify(*still, copy.put.object).ok()) return;
    auto call = calls_.begin<Status>(session, deadline,
                                     [this](Status s) { env_.count.copied_supplements += s.ok(); });
    puts_.start(*still, std::move(copy.put), nullptr, std::move(call), std::move(copy.states_of));
  }
}

// True if the commit's puts have ended and the eraser lets it publish, or there is nothing to wait
// for any more.
bool Commits::may_publish(const Waiting& commit) {
  if (commit.call->finished()) return true;
  const Reservation* r = reservations_.find(commit.session, commit.id);
  return !r || (r->objects.encoding.empty() && eraser_.may_publish(r->model->ns));
}

void Commits::go_on() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto at = it++;
    if (!may_publish(*at)) continue;
    Waiting commit = std::move(*at);
    waiting_.erase(at);
    publish(commit);
  }
}

void Commits::publish(const Waiting& commit) {
  if (!reservations_.find(commit.session, commit.id)) {
    return commit.call->fail({StatusCode::not_found, "the reservation ended"});
  }
  if (commit.call->finished()) return reservations_.end(commit.id);
  publications_.publish(reservations_.take(commit.id), commit.wait_for, commit.call);
}

}  // namespace kv
