// Opens, one after another. Plans, and the workers' part: core/open_plan.cc.
#include "cachesvc/core/opens.h"

#include <algorithm>

namespace kv {

struct Opens::Job {
  enum class State : uint8_t { queued, asking, making, records, done };
  void move(State to) {
    const bool ends = to == State::done && state != State::done;
    const bool unasked = state == State::queued && to == State::making;
    KV_CHECK(ends || unasked || static_cast<int>(to) == static_cast<int>(state) + 1);
    state = to;
  }
  State state = State::queued;
  uint64_t session = 0;
  OpenRequest request;
  OpenPlan plan;
  std::optional<Result<RemoteProfile>> fleet;  ///< what the shared tier said
  std::shared_ptr<const CodedModel> coded;
  Charge making;  ///< pays for the rest until the records are written
  std::shared_ptr<Call<Result<OpenReply>>> call;
};

void Opens::open(uint64_t session, OpenRequest request, CallTerms terms,
                 std::function<void(Result<OpenReply>)> done) {
  auto call = calls_.begin<Result<OpenReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  auto job = std::make_shared<Job>();
  job->session = session;
  job->request = std::move(request);
  job->call = call;
  queue_.push_back(std::move(job));
  next();
}

void Opens::next() {
  if (under_way_) return;
  if (queue_.empty()) return models_.rest_unused();  // models left unused while one was opened
  under_way_ = std::move(queue_.front());
  queue_.pop_front();
  models_.suspend(true);
  run(under_way_);
}

void Opens::end_turn(const JobPtr& job) {
  if (job->state == Job::State::done) return;
  job->move(Job::State::done);
  if (under_way_ != job) return;
  under_way_.reset();
  models_.suspend(false);
  env_.progress();
}

void Opens::fail(const JobPtr& job, const Status& status) {
  job->call->fail(status);
  end_turn(job);
}

// Goes on without a device that hangs.
void Opens::go_on() {
  const JobPtr job = under_way_;
  if (job && job->state == Job::State::records && lane_.hangs()) put_in_force(job, false);
  next();
}

void Opens::close() {
  queue_.clear();
  under_way_.reset();
}

void Opens::check_invariants() const {
  for (const JobPtr& job : queue_) KV_CHECK(job->state == Job::State::queued);
  if (!under_way_) return;
  const Job::State now = under_way_->state;
  KV_CHECK(now != Job::State::queued && now != Job::State::done);
  KV_CHECK(!models_.may_forget());
}

void Opens::run(const JobPtr& job) {
  if (job->call->finished()) return end_turn(job);
  SessionState* session = calls_.session(job->session);
  if (!session) return fail(job, {StatusCode::not_found, "no such session"});
  if (env_.draining()) return fail(job, {StatusCode::unavailable, "the cache is draining"});
  auto planned = plan_open(env_, models_, session->ns, job->request);
  if (!planned.ok()) return fail(job, planned.status());
  job->plan = std::move(*planned);
  const OpenPlan& plan = job->plan;
  auto known = models_.share({plan.ns, plan.spec->fingerprint});
  const bool in_force = known && known->coded && !job->request.replace;
  const bool written = !lane_ || plan.records_durable;
  if (in_force && written && plan.profile->prefill == plan.prefill) {
    job->call->finish(reply(*job, known));
    return end_turn(job);
  }
  if (plan.is_new) {
    if (Status full = models_.place_for(plan.ns); !full.ok()) return fail(job, full);
  }
  if (Status full = models_.room_for(plan.spec->name, plan.bytes); !full.ok()) {
    return fail(job, full);
  }
  plan.asks_fleet() ? ask(job) : make(job);
}

// A profile that comes into force where nothing is stored, or by a client's wish, is the fleet's if
// that has one. One that may not come into force is not given to the fleet.
void Opens::ask(const JobPtr& job) {
  job->move(Job::State::asking);
  Room room;
  room.share = env_.namespaces.share(job->plan.ns);
  room.model = job->plan.bytes;
  room_.with_room(
      room, job->call->deadline,
      [this, job](Result<std::shared_ptr<RoomCharges>> charges) {
        if (job->call->finished()) return end_turn(job);
        if (!charges.ok()) return fail(job, charges.status());
        auto find_own = [plan = job->plan, ssd = lane_.ssd(), charges = *charges] {
          return own_profile(plan, ssd.get());
        };
        auto then = [this, job](const Result<OwnProfile>& own) {
          const OpenPlan& plan = job->plan;
          profiles_.agree({plan.ns, plan.spec->fingerprint}, own.ok() ? own->profile : nullptr,
                          job->call->deadline, [this, job, own](const auto& fleet) {
                            if (!own.ok() && !fleet.ok()) return fail(job, own.status());
                            heard(job, fleet);
                          });
        };
        env_.task(std::move(find_own), std::move(then))
            ->submit(job->plan.resting ? env_.disk : env_.workers);
      },
      job->call);
}

void Opens::heard(const JobPtr& job, const Result<RemoteProfile>& fleet) {
  OpenPlan& plan = job->plan;
  if (job->call->finished()) return end_turn(job);
  if (!fleet.ok() && plan.adopt) {
    return fail(job, {fleet.status().code(),
                      "replace: the shared tier's profile: " + fleet.status().message()});
  }
  job->fleet = fleet;
  if (fleet.ok()) plan.take_fleet(fleet->profile);
  if (Status full = models_.room_for(plan.spec->name, plan.bytes); !full.ok()) {
    return fail(job, full);
  }
  make(job);
}

void Opens::make(const JobPtr& job) {
  job->move(Job::State::making);
  Room room;
  room.share = env_.namespaces.share(job->plan.ns);
  room.model = job->plan.bytes + job->plan.making_bytes;
  room_.with_room(
      room, job->call->deadline,
      [this, job](Result<std::shared_ptr<RoomCharges>> charges) {
        if (job->call->finished()) return end_turn(job);
        if (!charges.ok()) return fail(job, charges.status());
        auto make = [plan = job->plan, ssd = lane_.ssd(), charges = *charges] {
          return make_open(plan, ssd.get(), std::move(charges->model));
        };
        auto then = [this, job](Result<OpenMade> result) {
          if (!result.ok()) return fail(job, result.status());
          made(job, std::move(*result));
        };
        env_.task(std::move(make), std::move(then))
            ->submit(job->plan.resting ? env_.disk : env_.workers);
      },
      job->call);
}

// Puts the model in force: the one that was made, or another session's equal one; its records
// follow if they are not on the SSD.
void Opens::made(const JobPtr& job, OpenMade made) {
  OpenPlan& plan = job->plan;
  job->making = std::move(made.making);
  const Id profile = made.coded->profile_id;
  job->coded = models_.shared(std::move(made.coded));
  if (made.rested) {
    plan.in_force = profile;
    plan.records_durable = job->coded->key == plan.resting->key;
  }
  plan.write_records = plan.in_force != profile || (lane_ && !plan.records_durable);
  const bool durable = !plan.write_records && plan.records_durable;
  if (plan.write_records) ++plan.serial;
  if (!lane_ || !plan.write_records || lane_.hangs()) return put_in_force(job, durable);
  if (Status full = models_.room_for_records(plan.ns, *job->coded); !full.ok()) {
    return fail(job, full);
  }
  job->move(Job::State::records);
  ModelRecord record{plan.ns, *plan.spec, profile, plan.serial};
  auto model = models_.share({plan.ns, plan.spec->fingerprint});
  model_records_.put(std::move(record), job->coded->profile, std::move(model),
                     [this, job](Status status) {
                       if (job->state == Job::State::records) put_in_force(job, status.ok());
                     });
}

void Opens::put_in_force(const JobPtr& job, bool records_written) {
  const OpenPlan& plan = job->plan;
  const bool is_new = !models_.find({plan.ns, plan.spec->fingerprint});
  Models::RecordsOnSsd records{plan.serial, std::nullopt};
  if (is_new || plan.write_records) records.durable = records_written;
  auto model = models_.put_in_force(plan.ns, job->coded, records);
  profiles_.in_force(*model, job->fleet ? &*job->fleet : nullptr);
  if (calls_.session(job->session)) job->call->finish(reply(*job, model));
  end_turn(job);
  models_.release_realms();  // the profile in force no more, if nothing is stored under it
}

OpenReply Opens::reply(const Job& job, const std::shared_ptr<ModelState>& model) {
  const uint32_t handle = calls_.opened(job.session, model);
  return {handle, model->realm->realm, model->realm->profile, model->coded->reports};
}

}  // namespace kv
