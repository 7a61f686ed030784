// Room, jobs, and the lease of what they made. See made_replies.h.
#include "cachesvc/core/made_replies.h"

#include <algorithm>
#include <numeric>

#include "cachesvc/core/reply_object.h"

namespace kv {

struct MadeReplies::Making {
  FetchReply reply;
  Prefix out;
  std::vector<uint64_t> bytes;  // results and scratch, by object, as far as known
  std::shared_ptr<RoomCharges> room;
  enum class Asked : uint8_t {
    now,       // for room: the answer may come at once
    waiting,   // without pins
    answered,  // there is room, or none
  } asked = Asked::now;
  size_t begun = 0;  // objects
  size_t left = 0;   // objects that are not made yet
  Status error;
  Then then;
};

void MadeReplies::make(const RunningFetchPtr& f, FetchReply reply, Then then) {
  auto making = std::make_shared<Making>();
  making->reply = std::move(reply);
  making->out = making->reply.lease.prefix();
  making->left = making->out.objects.size();
  making->then = std::move(then);
  count_bytes(f, making);
}

void MadeReplies::count_bytes(const RunningFetchPtr& f, const MakingPtr& making) {
  if (f->call->finished()) return;
  const auto& objects = making->out.objects;
  const size_t end = std::min(objects.size(), making->bytes.size() + kObjectsAtATime);
  while (making->bytes.size() < end) {
    const Object& object = *objects[making->bytes.size()].object;
    making->bytes.push_back(reply_bytes(object, f->request.form, f->request.selection).slabs());
  }
  if (end == objects.size()) return ask_for_room(f, making);
  env_.later([this, f, making] { count_bytes(f, making); });
}

void MadeReplies::ask_for_room(const RunningFetchPtr& f, const MakingPtr& making) {
  Room room;
  room.share = f->realm->share;
  room.reply = std::accumulate(making->bytes.begin(), making->bytes.end(), uint64_t{0});
  f->step_began = Clock::now();
  if (f->reply_room && f->reply_room_bytes() >= room.reply) {
    making->room = std::move(f->reply_room);
    return begin(f, making);
  }
  f->reply_room.reset();
  room_.with_room(
      room, f->deadline,
      [this, f, making](Result<std::shared_ptr<RoomCharges>> got) {
        f->step_ended(&RequestRecord::wait_us);
        const auto before = std::exchange(making->asked, Making::Asked::answered);
        if (f->call->finished()) return;
        if (got.ok() && before == Making::Asked::waiting) {
          f->reply_room = std::move(*got);
          return making->then.again();
        }
        if (got.ok()) {
          f->step_began = Clock::now();
          making->room = std::move(*got);
          return begin(f, making);
        }
        let_go(*making);
        // Nothing is left to aim at: a reply of what RAM holds does not fit either.
        if (f->patience == RunningFetch::Patience::ram_only) f->max_tokens = 0;
        f->no_room(got.status());
        env_.later([making] { making->then.again(); });  // its pins are gone by then
      },
      f->call);
  if (making->asked == Making::Asked::answered) return;
  making->asked = Making::Asked::waiting;
  let_go(*making);
}

// Objects that the reply leases may be evicted.
void MadeReplies::let_go(Making& making) {
  making.reply.lease = Lease();
  making.out = {};
}

void MadeReplies::begin(const RunningFetchPtr& f, const MakingPtr& making) {
  if (f->call->finished()) return;
  const size_t end = std::min(making->out.objects.size(), making->begun + kObjectsAtATime);
  while (making->begun < end) make_one(f, making, making->begun++);
  if (end < making->out.objects.size()) {
    env_.later([this, f, making] { begin(f, making); });
  }
}

void MadeReplies::make_one(const RunningFetchPtr& f, const MakingPtr& making, size_t at) {
  auto charge = std::make_shared<Charge>(making->room->reply.split(making->bytes[at]));
  auto task = env_.task(
      [object = making->out.objects[at].object, form = f->request.form,
       selection = f->request.selection, charge, codec = f->realm->codec, pool = env_.pool] {
        return make_reply_object(object, *codec, form, selection, *pool, std::move(*charge));
      },
      [this, f, making, at](Result<ObjectPtr> made) {
        decodes_.ended();
        if (made.ok())
          making->out.objects[at].object = *made;
        else
          making->error = made.status();
        if (--making->left == 0) made_all(f, *making);
      });
  decodes_.submit(f->realm->realm.ns, making->bytes[at], std::move(task));
}

void MadeReplies::made_all(const RunningFetchPtr& f, Making& making) {
  if (f->call->finished()) return;
  f->step_ended(&RequestRecord::make_us);
  if (!making.error.ok()) return f->call->fail(making.error);
  std::erase_if(making.out.objects, [](const FetchedObject& o) { return !o.object; });
  // Made objects own their bytes: the stored ones need no pin any more.
  if (f->copies())
    making.reply.lease = Lease(std::move(making.out), nullptr);
  else
    making.reply.lease = Lease(std::move(making.out), making.reply.lease.kept());
  making.then.made(std::move(making.reply));
}

}  // namespace kv
