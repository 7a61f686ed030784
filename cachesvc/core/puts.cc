// Puts, from arrival to finished and invisible.
#include "cachesvc/core/puts.h"

#include <algorithm>

#include "cachesvc/core/index_bytes.h"

namespace kv {
namespace {

constexpr size_t kPlanesPerRunner = 4;  // fewer aren't worth another worker

// The slots' begins in what a RowSource brings, in the order of the planes. All of them are given.
void set_begins(const std::vector<Plane>& planes, std::vector<PlaneSlot>& slots) {
  std::vector<uint64_t> begins;
  uint64_t at = 0;
  for (const Plane& p : planes) {
    begins.push_back(at);
    at += p.bytes.size();
  }
  for (PlaneSlot& slot : slots) slot.at = begins[static_cast<size_t>(slot.given - planes.data())];
}

Status no_longer_wanted() { return {StatusCode::cancelled, "the put was cancelled"}; }
Status reservation_ended() { return {StatusCode::not_found, "the reservation ended"}; }

}  // namespace

void Puts::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
               CallTerms terms, std::function<void(Status)> done) {
  put(session, std::move(request), Given{std::move(room), {}, {}}, terms, std::move(done));
}

bool Puts::reads_rows(const PutRequest& request) {
  const Object& o = request.object;
  if (o.name.kind != ObjectKind::block) return false;  // others are small
  if (!request.copies.empty() || !o.states.empty()) return false;
  return std::all_of(o.planes.begin(), o.planes.end(),
                     [](const Plane& p) { return p.runs.size() == 1 && !has_coded_runs(p); });
}

void Puts::put_rows(uint64_t session, PutRequest request, RowSource rows, CallTerms terms,
                    std::function<void(Status)> done) {
  // Sizes are those of the shapes; nothing reads the bytes before they have been brought.
  for (Plane& p : request.object.planes) p.bytes = Bytes(nullptr, nullptr, plane_bytes(p));
  put(session, std::move(request), Given{nullptr, std::move(rows), {}}, terms, std::move(done));
}

void Puts::put(uint64_t session, PutRequest request, Given given, CallTerms terms,
               std::function<void(Status)> done) {
  auto call = calls_.begin<Status>(session, terms, std::move(done));
  if (call->finished()) return;
  Reservation* r = reservations_.find(session, request.reservation);
  if (!r) return call->fail({StatusCode::not_found, "no such reservation"});
  Object& o = request.object;
  if (o.planes.size() > kMaxPlanesPerObject || request.copies.size() > kMaxRunsPerPlane) {
    return call->fail(invalid_argument("planes or copies of one object over their limit"));
  }
  if (Status s = identify(*r, o); !s.ok()) return call->fail(s);
  start(*r, std::move(request), std::move(given), call);
}

void Puts::start(Reservation& r, PutRequest request, std::shared_ptr<RoomCharges> room,
                 std::shared_ptr<Call<Status>> call, RamObject states_of) {
  start(r, std::move(request), Given{std::move(room), {}, std::move(states_of)}, std::move(call));
}

void Puts::start(Reservation& r, PutRequest request, Given given,
                 std::shared_ptr<Call<Status>> call) {
  Object& o = request.object;
  const ObjectName asked = o.name;
  cut_rows(r, o);
  if (Record* there = index_.find_usable(o.name)) {
    r.objects.foreign.insert(o.name);
    r.objects.existed.insert(o.name);
    r.objects.given.push_back(asked);
    r.pins.add(*there);  // an acked object stays, or the commit names it as lost
    ++env_.count.puts_duplicate;
    return call->finish(Status());
  }
  if (r.objects.finished.count(o.name) || !r.objects.encoding.insert(o.name).second) {
    ++env_.count.puts_duplicate;
    return call->finish(Status());
  }
  auto job = std::make_shared<Job>();
  job->call = std::move(call);
  job->session = r.session;
  job->reservation = r.id;
  job->room = std::move(given.room);
  job->name = o.name;
  job->asked = asked;
  EncodeWork& work = *job->work;
  EncodeInput& in = work.input;
  in.keep = {o.name.first_row, o.name.end_row};
  bool whole = o.tokens.size() == r.realm->block_tokens();
  in.encode = whole && (o.name.kind == ObjectKind::block || o.name.kind == ObjectKind::supplement);
  in.object = std::move(o);
  in.copies = std::move(request.copies);
  in.states_of = std::move(given.states_of);
  in.keep_nonfinite = env_.options.nonfinite == Nonfinite::raw;
  in.codec = r.realm->codec;
  in.groups = r.realm->groups.shared();
  work.pool = env_.pool;
  work.read = std::move(given.rows);
  auto slots = plane_slots(in);
  if (!slots.ok()) return finish(job, slots.status());
  work.slots = std::move(*slots);
  if (work.read) set_begins(in.object.planes, work.slots);
  gather(job);
}

// Sources must share all tokens before the rows, as rows depend on them.
Status Puts::check_copy(const Reservation& r, const CopyRows& copy, const Record& source) {
  if (source.name.kind == ObjectKind::snapshot) {
    return invalid_argument("copy source " + copy.source.id.hex() +
                            " is a snapshot: it has no rows");
  }
  uint32_t common = common_with(source, r.query, r.blocks);
  if (copy.end_row <= common) return {};
  return invalid_argument("copies: rows [" + std::to_string(copy.first_row) + ", " +
                          std::to_string(copy.end_row) + ") of a source that shares only " +
                          std::to_string(common) + " tokens with the reservation");
}

// Brings the sources of copies into RAM first.
void Puts::gather(const JobPtr& job) {
  Reservation* r = reservations_.find(job->session, job->reservation);
  if (!r || job->call->finished()) return finish(job, reservation_ended());
  EncodeInput& in = job->work->input;
  in.sources.clear();
  for (const CopyRows& copy : in.copies) {
    Record* source = index_.find(copy.source);
    if (!source || source->realm != r->realm.get()) {
      return finish(job, Status(StatusCode::not_found,
                                "copy source " + copy.source.id.hex() + " is not stored"));
    }
    if (Status s = check_copy(*r, copy, *source); !s.ok()) return finish(job, s);
    if (!source->ram) return read_source(job, *source);
    in.sources.push_back(source->ram);
  }
  env_.count.copies += in.copies.size();
  charge(job);
}

void Puts::read_source(const JobPtr& job, Record& source) {
  auto again = [this, job](Status status) { status.ok() ? gather(job) : finish(job, status); };
  if (promoter_.hangs()) {
    return again(Status(StatusCode::io_error,
                        "copy source " + source.name.id.hex() + " is on an SSD that hangs"));
  }
  if (promoter_.promoting(source)) return promoter_.join(source, again);
  PinnedName which{source.name, source.serial};
  with_room(job, Promoter::room_for(source),
            [this, which, again](Result<std::shared_ptr<RoomCharges>> room) {
              Record* found = index_.find(which);
              bool read = room.ok() && found && !found->ram && !promoter_.hangs();
              if (!read) return again(room.ok() ? Status() : room.status());
              promoter_.promote(*found, std::move((*room)->stored), std::move((*room)->promotion),
                                again);
            });
}

// An upper estimate of the object's stored payload.
uint64_t Puts::stored_bytes(const Reservation& r, const EncodeInput& in) {
  const Object& o = in.object;
  uint64_t bytes = 0;
  for (const auto& s : o.states) bytes += s.bytes.size();
  Need need{o.name.kind, 0, o.name.group, o.first_token, o.end_token(), true};
  if (o.name.kind == ObjectKind::supplement) {
    if (!in.encode) {  // rows of a tail are kept as given, or as they lie in their sources
      bytes = o.payload_bytes();
      for (size_t i = 0; i < in.sources.size(); ++i) {
        const ObjectName& from = in.sources[i]->name;
        uint64_t all = in.sources[i]->payload_bytes(), rows = from.end_row - from.first_row;
        uint64_t copied = in.copies[i].end_row - in.copies[i].first_row;
        bytes += rows > copied ? (all * copied + rows - 1) / rows : all;
      }
      return bytes;
    }
    need.first_row = in.keep.first;
    need.end_row = in.keep.end;
  }
  return bytes + need_bytes(*r.realm->model, *r.realm->profile, r.realm->groups, need);
}

size_t Puts::runners(const EncodeWork& work) const {
  return std::clamp<size_t>(work.slots.size() / kPlanesPerRunner, 1, env_.options.workers);
}

void Puts::charge(const JobPtr& job) {
  Reservation* r = reservations_.find(job->session, job->reservation);
  if (!r) return finish(job, reservation_ended());
  EncodeWork& w = *job->work;
  const Object& object = w.input.object;
  uint64_t out = stored_bytes(*r, w.input);
  Room room;
  room.share = r->realm->share;
  room.stored = RamPool::slab_bytes(out);
  room.index = index_bytes(object.name.kind, object.tokens);
  room.staging = out;
  if (!job->room) room.staging += object.payload_bytes();
  if (w.read) room.staging = scratch_bytes(w) * runners(w);
  auto take = [](Charge& from, uint64_t& wanted, Charge& into) {
    uint64_t part = std::min(from.bytes(), wanted);
    if (part > 0) into.merge(from.split(part));
    wanted -= part;
  };
  // The reservation's room is used first, then the frame's.
  take(r->charges.stored, room.stored, w.stored);
  take(r->charges.index, room.index, job->index);
  if (job->room) {
    take(job->room->stored, room.stored, w.stored);
    take(job->room->index, room.index, job->index);
    take(job->room->staging, room.staging, w.staging);
  }
  with_room(job, room, [this, job](Result<std::shared_ptr<RoomCharges>> charges) {
    if (!charges.ok()) return finish(job, charges.status());
    EncodeWork& work = *job->work;
    work.stored.merge(std::move((*charges)->stored));
    job->index.merge(std::move((*charges)->index));
    work.staging.merge(std::move((*charges)->staging));
    job->room.reset();
    encode(job);
  });
}

// A put whose body lies in the pool holds a part already, so it does not wait for more.
void Puts::with_room(const JobPtr& job, Room room, RoomDone done) {
  if (!job->room) return room_.with_room(room, job->call->deadline, std::move(done), job->call);
  if (auto charges = room_.room_now(room)) return done(charges);
  ++env_.count.busy;
  done(Status(StatusCode::busy, "no RAM for " + std::to_string(room.total()) +
                                    " bytes more than the put's frame had reserved"));
}

void Puts::encode(const JobPtr& job) {
  job->call->on_end = [call = job->call.get(), work = job->work] {
    // An answered put reads no more of the client's memory, where other rows may lie by now.
    if (call->cancelled || work->read) work->error.set(no_longer_wanted());
  };
  const size_t planes = job->work->slots.size();
  job->runners = runners(*job->work);
  env_.count.encoded_planes += job->work->input.encode ? planes : 0;
  for (size_t i = 0, runners = job->runners; i < runners; ++i) {
    env_.on_worker(
        [work = job->work]() -> Status {
          encode_planes(*work);
          return {};
        },
        [this, job](Status status) {
          if (!status.ok()) job->work->error.set(status);
          if (--job->runners > 0) return;
          env_.on_worker([work = job->work] { return assemble(*work); },
                         [this, job](Result<RamObject> object) { finish(job, std::move(object)); });
        });
  }
}

void Puts::finish(const JobPtr& job, Result<RamObject> result) {
  env_.count.encode_raw_fallbacks += job->work->counts.raw_fallbacks.load();
  env_.count.nonfinite_planes += job->work->counts.nonfinite.load();
  const StreamBytes streams = job->work->counts.streams();
  for (const ObjectPtr& damaged : job->work->damaged) {
    Record* source = index_.find(damaged->name);
    if (source && source->ram.object == damaged) checks_.damaged(*source);
  }
  Charge left = std::move(job->work->stored);
  // The call ended behind the last worker (encode()).
  if (result.ok() && job->work->error.failed()) result = job->work->error.status();
  job->work.reset();
  job->call->on_end = nullptr;
  Reservation* r = reservations_.find(job->session, job->reservation);
  if (!r) return job->call->fail(reservation_ended());
  r->objects.encoding.erase(job->name);
  r->charges.stored.merge(std::move(left));
  if (result.ok()) {
    note_fit(*r->realm, streams);
    auto [at, is_new] = r->objects.finished.try_emplace(job->name);
    at->second = {std::move(*result), std::move(job->index)};
    if (is_new) reservations_.prolong(*r);  // a put that brings nothing prolongs nothing
    r->objects.given.push_back(job->asked);
  } else {
    r->charges.index.merge(std::move(job->index));
  }
  if (r->objects.encoding.empty()) env_.progress();  // a commit may wait for it
  job->call->finish(result.status());
}

// Tells once if the transforms of a profile do not fit the rows that it gets.
void Puts::note_fit(RealmState& realm, const StreamBytes& streams) {
  if (streams.f16 == 0) return;
  ModelUse& use = env_.measures.models.of(realm.realm.ns, realm.model->name);
  use.stream_bytes += streams.taken;
  use.stream_promised_bytes += streams.promised;
  if (!realm.fit.add(streams, streamed_token_bytes(*realm.model, *realm.profile))) return;
  env_.event(EventKind::transforms_misfit,
             [&] { return "model " + realm.model->name + ": " + realm.fit.words(); });
}

}  // namespace kv
