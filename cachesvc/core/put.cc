// put: one object of a reservation, from arrival to finished and invisible.
#include <algorithm>

#include "cachesvc/core/encode.h"
#include "cachesvc/core/impl.h"
#include "cachesvc/core/needs.h"

namespace kv {

struct CacheCore::Impl::PutJob {
  PutJob() = default;
  PutJob(const PutJob&) = delete;  // ends once
  PutJob& operator=(const PutJob&) = delete;
  ~PutJob() {
    auto self = core.lock();
    if (self && !ended) self->finish_put(*this, out_of_memory());
  }
  std::weak_ptr<Impl> core;  ///< once its name is among the reservation's `encoding`
  bool ended = false;
  std::shared_ptr<Call<Status>> call;
  uint64_t session = 0, reservation = 0;
  std::shared_ptr<RoomCharges> room;  ///< that came with its frame; null: the caller's planes
  Deadline deadline;
  ObjectName name;
  ObjectName asked;  ///< as the client gave it, with rows that were there already
  std::shared_ptr<EncodeWork> work = std::make_shared<EncodeWork>();
  Charge index;
  size_t runners = 0;
};

namespace {

constexpr size_t kPlanesPerRunner = 4;  // fewer aren't worth another worker

Status wrong(const std::string& what, uint64_t expected, uint64_t given) {
  return invalid_argument(what + ": expected " + std::to_string(expected) + ", given " +
                          std::to_string(given));
}

// What a header says of whose object it is: zeros and empty names leave it to the service.
Status check_header(const Object& o, const Realm& realm, const Id& parent) {
  auto differs = [](const char* field, const std::string& expected, const std::string& given) {
    return invalid_argument(std::string("object's ") + field + ": expected " + expected +
                            " or nothing, given " + given);
  };
  if (!o.ns.empty() && o.ns != realm.ns) return differs("namespace", realm.ns, o.ns);
  struct {
    const char* field;
    const Id &expected, &given;
  } ids[] = {{"fingerprint", realm.fingerprint, o.fingerprint},
             {"profile", realm.profile, o.profile},
             {"parent", parent, o.parent}};
  for (const auto& id : ids) {
    bool same = id.given.is_zero() || id.given == id.expected;
    if (!same) return differs(id.field, id.expected.hex(), id.given.hex());
  }
  return {};
}

Status set_tokens(Object& o, const Query& query, uint32_t first, uint32_t end) {
  auto tokens = tokens_between(query, first, end);
  auto extras = extras_in(query.extras, first, end);
  if (!o.tokens.empty() &&
      !std::equal(o.tokens.begin(), o.tokens.end(), tokens.begin(), tokens.end())) {
    return invalid_argument(std::string(to_string(o.name.kind)) + " at token " +
                            std::to_string(first) + ": its tokens are not the reservation's");
  }
  if (!o.extras.empty() &&
      !std::equal(o.extras.begin(), o.extras.end(), extras.begin(), extras.end())) {
    return invalid_argument(std::string(to_string(o.name.kind)) + " at token " +
                            std::to_string(first) + ": its extras are not the reservation's");
  }
  o.tokens.assign(tokens.begin(), tokens.end());
  o.extras.assign(extras.begin(), extras.end());
  return {};
}

}  // namespace

// Which object of the reservation this is; fills what the client may leave out.
Status CacheCore::Impl::identify(Reservation& r, Object& o) {
  uint32_t block = r.realm->block_tokens();
  auto n = static_cast<uint32_t>(r.query.tokens.size());
  if (o.name.kind == ObjectKind::snapshot) return identify_snapshot(r, o);
  if (o.first_token % block != 0 || o.first_token >= n) {
    return invalid_argument("first_token " + std::to_string(o.first_token) +
                            ": no block of this reservation begins there");
  }
  uint32_t index = o.first_token / block;
  bool complete = index < r.blocks.size();
  if (o.name.kind != ObjectKind::supplement && (o.name.kind == ObjectKind::block) != complete) {
    return invalid_argument("tokens from " + std::to_string(o.first_token) + " are a " +
                            (complete ? "block" : "tail") + ", given as a " +
                            to_string(o.name.kind));
  }
  uint32_t end = complete ? o.first_token + block : n;
  KV_RETURN_IF_ERROR(set_tokens(o, r.query, o.first_token, end));
  const Id parent = index == 0 ? Id{} : r.blocks[index - 1];
  KV_RETURN_IF_ERROR(check_header(o, r.realm->realm, parent));
  o.parent = parent;
  ObjectName name = o.name;
  stamp(o, r.realm->realm);  // a supplement gets its block's id below
  o.name = name;
  Id id = complete ? r.blocks[index] : r.tail;
  if (!name.id.is_zero() && name.id != id) {
    return invalid_argument("object at token " + std::to_string(o.first_token) +
                            ": its id is not the reservation's");
  }
  o.name.id = id;
  if (name.kind == ObjectKind::supplement) return identify_supplement(r, o);
  o.name = {name.kind, id, 0, 0, 0};
  return {};
}

Status CacheCore::Impl::identify_supplement(Reservation& r, Object& o) {
  if (o.name.group >= r.realm->groups.size()) {
    return wrong("supplement: group below", r.realm->groups.size(), o.name.group);
  }
  const PartSpec& spec = r.realm->groups[o.name.group].spec;
  bool rows = spec.has_rows() && !spec.rows_in_block();
  if (o.name.first_row == 0 && o.name.end_row == 0 && !o.planes.empty()) {
    o.name.first_row = o.planes[0].first_row;
    o.name.end_row = o.planes[0].end_row();
  }
  uint32_t a = o.name.first_row, b = o.name.end_row;
  bool carry = !rows && (spec.kind == PartKind::pooled ||
                         (!spec.has_rows() && spec.snapshot == SnapshotPlace::block_end));
  if (!rows && !carry) {
    return invalid_argument(std::string("a ") + to_string(spec.kind) +
                            " part's rows belong in the block, its state in a snapshot");
  }
  bool inside = rows ? a < b && a >= o.first_token : a == b && a > o.first_token;
  if (!inside || b > o.end_token()) {
    PartGroup::Member first = r.realm->groups[o.name.group].members[0];
    std::string at = "layer " + std::to_string(first.layer) + " part " +
                     std::to_string(first.part) + " (" + to_string(spec.kind) + "): ";
    at += rows ? "expected rows inside tokens [" : "expected one position inside (";
    return invalid_argument(at + std::to_string(o.first_token) + ", " +
                            std::to_string(o.end_token()) + (rows ? ")" : "]") + ", given rows [" +
                            std::to_string(a) + ", " + std::to_string(b) + ")");
  }
  return {};
}

// Rows that are there already are cut from both ends of a supplement; a duplicate if none is left.
void CacheCore::Impl::cut_rows(const Reservation& r, Object& o) {
  uint32_t a = o.name.first_row, b = o.name.end_row;
  auto node = r.realm->node_of.find(o.name.id);
  bool rows = o.name.kind == ObjectKind::supplement && a < b;
  if (!rows || node == r.realm->node_of.end()) return;
  for (const Record* other : r.realm->nodes.at(node->second).attached) {
    if (other->name.kind != ObjectKind::supplement || other->name.group != o.name.group) continue;
    if (!other->usable(kUnreadableIsMissing))
      continue;  // its reads failed: these may be asked for again
    uint32_t c = other->name.first_row, d = other->name.end_row;
    if (c <= a && d >= b) {
      o.name = other->name;
      return;
    }
    if (c <= a && d > a) a = d;
    if (c < b && d >= b) b = c;
  }
  o.name.first_row = a;
  o.name.end_row = b;
}

Status CacheCore::Impl::identify_snapshot(Reservation& r, Object& o) {
  uint32_t block = r.realm->block_tokens();
  uint32_t at = o.tokens.empty() && o.name.end_row > 0 ? o.name.end_row : o.end_token();
  if (at == 0 || at > r.query.tokens.size()) {
    return wrong("snapshot: position at most", r.query.tokens.size(), at);
  }
  uint32_t index = at / block;
  o.first_token = index * block;
  KV_RETURN_IF_ERROR(set_tokens(o, r.query, o.first_token, at));
  const Id parent = index == 0 ? Id{} : r.blocks[index - 1], given = o.name.id;
  KV_RETURN_IF_ERROR(check_header(o, r.realm->realm, parent));
  o.parent = parent;
  o.name = {ObjectKind::snapshot, {}, 0, 0, 0};
  stamp(o, r.realm->realm);
  if (!given.is_zero() && given != o.name.id) {
    return invalid_argument("snapshot at token " + std::to_string(at) +
                            ": its id is not the reservation's");
  }
  return {};
}

void CacheCore::Impl::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
                          Deadline deadline, Done<Status> done) {
  auto call = begin<Status>(session, deadline, std::move(done));
  if (call->finished()) return;
  Reservation* r = find_reservation(session, request.reservation);
  if (!r) return call->fail({StatusCode::not_found, "no such reservation"});
  Object& o = request.object;
  if (o.planes.size() > kMaxPlanesPerObject || request.copies.size() > kMaxRunsPerPlane) {
    return call->fail(invalid_argument("planes or copies of one object over their limit"));
  }
  if (Status s = identify(*r, o); !s.ok()) return call->fail(s);
  start_put(*r, std::move(request), std::move(room), deadline, call);
}

// `request.object` is identified.
void CacheCore::Impl::start_put(Reservation& r, PutRequest request,
                                std::shared_ptr<RoomCharges> room, Deadline deadline,
                                std::shared_ptr<Call<Status>> call, RamObject states_of) {
  Object& o = request.object;
  const ObjectName asked = o.name;
  cut_rows(r, o);
  if (Record* there = find_usable(o.name)) {
    r.foreign.insert(o.name);
    r.existed.insert(o.name);
    r.given.push_back(asked);
    pin_too(r.pins, *there);  // what was acked stays, or the commit names it
    ++count_.puts_duplicate;
    return call->finish(Status());
  }
  auto job = std::make_shared<PutJob>();
  if (r.finished.count(o.name) || !r.encoding.insert(o.name).second) {
    ++count_.puts_duplicate;
    return call->finish(Status());
  }
  job->core = weak_from_this();
  job->call = call;
  job->session = r.session;
  job->reservation = r.id;
  job->room = std::move(room);
  job->deadline = deadline;
  job->name = o.name;
  job->asked = asked;
  EncodeWork& w = *job->work;
  w.keep = {o.name.first_row, o.name.end_row};
  bool whole = o.tokens.size() == r.realm->block_tokens();
  w.encode = whole && (o.name.kind == ObjectKind::block || o.name.kind == ObjectKind::supplement);
  w.object = std::move(o);
  w.copies = std::move(request.copies);
  w.states_of = std::move(states_of);
  w.keep_nonfinite = options_.nonfinite == Nonfinite::raw;
  w.codec = r.realm->codec;
  w.groups = r.realm->groups.shared();
  w.pool = pool_;
  if (Status s = prepare(w); !s.ok()) return finish_put(*job, s);
  gather_sources(job);
}

// Rows depend on all tokens before them, so they may come from an entry that begins with the same.
Status CacheCore::Impl::check_copy(const Reservation& r, const CopyRows& copy,
                                   const Record& source) {
  if (source.name.kind == ObjectKind::snapshot) {
    return invalid_argument("copy source " + copy.source.id.hex() +
                            " is a snapshot: it has no rows");
  }
  uint32_t common = index_.common_with(source, r.query, r.blocks);
  if (copy.end_row <= common) return {};
  return invalid_argument("copies: rows [" + std::to_string(copy.first_row) + ", " +
                          std::to_string(copy.end_row) + ") of a source that shares only " +
                          std::to_string(common) + " tokens with the reservation");
}

// Copies read their sources from RAM: what is on the SSD comes first.
void CacheCore::Impl::gather_sources(std::shared_ptr<PutJob> job) {
  Reservation* r = find_reservation(job->session, job->reservation);
  if (!r || job->call->finished()) return finish_put(*job, Status(StatusCode::not_found, "ended"));
  EncodeWork& w = *job->work;
  w.sources.clear();
  for (const CopyRows& copy : w.copies) {
    Record* source = index_.find(copy.source);
    if (!source || source->realm != r->realm.get()) {
      return finish_put(*job, Status(StatusCode::not_found,
                                     "copy source " + copy.source.id.hex() + " is not stored"));
    }
    if (Status s = check_copy(*r, copy, *source); !s.ok()) return finish_put(*job, s);
    if (source->ram) {
      w.sources.push_back(source->ram);
      continue;
    }
    auto again = [this, job](Status status) {
      status.ok() ? gather_sources(job) : finish_put(*job, status);
    };
    if (reads_hang()) {
      return finish_put(*job, Status(StatusCode::io_error, "copy source " + copy.source.id.hex() +
                                                               " is on an SSD that hangs"));
    }
    if (promoting(*source)) return join_promotion(*source, again);
    PinnedName which{source->name, source->serial};
    put_room(*job, room_to_promote(*source),
             [this, job, which, again](Result<std::shared_ptr<RoomCharges>> room) {
               Record* found = find_pinned(which);
               bool read = room.ok() && found && !found->ram && !reads_hang();
               if (!read) return again(room.ok() ? Status() : room.status());
               promote(*found, std::move((*room)->stored), std::move((*room)->promotion), again);
             });
    return;
  }
  count_.copies += w.copies.size();
  charge_put(job);
}

// An upper estimate of the object's stored payload.
uint64_t CacheCore::Impl::put_bytes(const Reservation& r, const PutJob& job) const {
  const EncodeWork& w = *job.work;
  const Object& o = w.object;
  uint64_t bytes = 0;
  for (const auto& s : o.states) bytes += s.bytes.size();
  Need need{o.name.kind, 0, o.name.group, o.first_token, o.end_token(), true};
  if (o.name.kind == ObjectKind::supplement) {
    if (!w.encode) {  // rows of a tail are kept as given, or as they lie in their sources
      bytes = o.payload_bytes();
      for (size_t i = 0; i < w.sources.size(); ++i) {
        const ObjectName& from = w.sources[i]->name;
        uint64_t all = w.sources[i]->payload_bytes(), rows = from.end_row - from.first_row;
        uint64_t copied = w.copies[i].end_row - w.copies[i].first_row;
        bytes += rows > copied ? (all * copied + rows - 1) / rows : all;
      }
      return bytes;
    }
    need.first_row = w.keep.first;
    need.end_row = w.keep.end;
  }
  return bytes + need_bytes(*r.realm->model, *r.realm->profile, r.realm->groups, need);
}

void CacheCore::Impl::charge_put(std::shared_ptr<PutJob> job) {
  Reservation* r = find_reservation(job->session, job->reservation);
  if (!r) return finish_put(*job, Status(StatusCode::not_found, "the reservation ended"));
  EncodeWork& w = *job->work;
  uint64_t out = put_bytes(*r, *job);
  Room room;
  room.stored = RamPool::slab_bytes(out);
  room.index = ObjectIndex::index_bytes(w.object.name.kind, w.object.tokens);
  room.staging = out;
  if (!job->room) room.staging += w.object.payload_bytes();
  auto take = [](Charge& from, uint64_t& wanted, Charge& into) {
    uint64_t part = std::min(from.bytes(), wanted);
    if (part > 0) into.merge(from.split(part));
    wanted -= part;
  };
  // What the reservation set aside, then what came with the frame.
  take(r->stored, room.stored, w.stored);
  take(r->index, room.index, job->index);
  if (job->room) {
    take(job->room->stored, room.stored, w.stored);
    take(job->room->index, room.index, job->index);
    take(job->room->staging, room.staging, w.staging);
  }
  put_room(*job, room, [this, job](Result<std::shared_ptr<RoomCharges>> charges) {
    if (!charges.ok()) return finish_put(*job, charges.status());
    EncodeWork& work = *job->work;
    work.stored.merge(std::move((*charges)->stored));
    job->index.merge(std::move((*charges)->index));
    work.staging.merge(std::move((*charges)->staging));
    job->room.reset();
    run_put(job);
  });
}

// A put whose body lies in the pool holds a part already, so it does not wait for more.
void CacheCore::Impl::put_room(const PutJob& job, Room room, RoomDone done) {
  if (!job.room) return with_room(room, job.deadline, std::move(done));
  if (auto charges = room_now(room)) return done(charges);
  ++count_.busy;
  done(Status(StatusCode::busy, "no RAM for " + std::to_string(room.total()) +
                                    " bytes more than the put's frame had reserved"));
}

void CacheCore::Impl::run_put(std::shared_ptr<PutJob> job) {
  size_t planes = job->work->slots.size();
  job->runners = std::clamp<size_t>(planes / kPlanesPerRunner, 1, options_.workers);
  count_.encoded_planes += job->work->encode ? planes : 0;
  for (size_t i = 0, runners = job->runners; i < runners; ++i) {
    on_worker(
        [work = job->work] {
          encode_planes(*work);
          return true;
        },
        [this, job](bool) {
          if (--job->runners > 0) return;
          on_worker([work = job->work] { return assemble(*work); },
                    [this, job](Result<RamObject> object) { finish_put(*job, std::move(object)); });
        });
  }
}

// Both or none.
void CacheCore::Impl::keep_finished(Reservation& r, const RamObject& object, Charge& index) {
  r.finished[object->name] = object;
  try {
    r.index_charges[object->name] = std::move(index);
  } catch (const std::bad_alloc&) {
    r.finished.erase(object->name);
    throw;
  }
}

void CacheCore::Impl::finish_put(PutJob& job, Result<RamObject> result) noexcept {
  job.ended = true;
  count_.encode_raw_fallbacks += job.work->raw_fallbacks.load();
  count_.nonfinite_planes += job.work->nonfinite.load();
  for (const ObjectPtr& damaged : job.work->damaged) {
    Record* source = index_.find(damaged->name);
    if (source && source->ram.object == damaged) lose_ram(*source);
  }
  Charge left = std::move(job.work->stored);
  job.work.reset();
  Reservation* r = find_reservation(job.session, job.reservation);
  if (r) {
    r->encoding.erase(job.name);
    r->stored.merge(std::move(left));
    try {
      bool is_new = result.ok() && !r->finished.count(job.name);
      if (result.ok()) keep_finished(*r, *result, job.index);
      if (is_new) arm(*r);  // what brings nothing prolongs nothing
      if (result.ok()) r->given.push_back(job.asked);
    } catch (const std::bad_alloc&) {
      result = out_of_memory();
    }
    if (!result.ok()) r->index.merge(std::move(job.index));
    if (result.ok())
      job.call->finish(Status());
    else
      job.call->fail(result.status().code(), result.status().message().c_str());
  } else {
    job.call->fail(StatusCode::not_found, "the reservation ended");
  }
  r = find_reservation(job.session, job.reservation);  // the callback may have ended it
  if (!r || !r->encoding.empty()) return;
  auto waiting = std::exchange(r->when_idle, {});
  for (auto& wake : waiting) (void)if_memory(wake);  // its call answers when it is dropped
}

}  // namespace kv
