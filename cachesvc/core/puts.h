// Puts: bring one object of a reservation each, from its arrival to finished and invisible.
//
//   named ──> gathering (copies: their sources come into RAM) ──> charged ──> encoding (workers)
//   ──> finished: the reservation has it; or refused, with nothing left of it
//
// Loop thread only, but for the encoding.
#pragma once

#include "cachesvc/core/encode.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/put_names.h"

namespace kv {

class Puts {
 public:
  Puts(Env& env, ObjectIndex& index, RamChecks& checks, RamRoom& room, Promoter& promoter,
       Calls& calls, Reservations& reservations)
      : env_(env),
        index_(index),
        checks_(checks),
        room_(room),
        promoter_(promoter),
        calls_(calls),
        reservations_(reservations) {}
  Puts(const Puts&) = delete;  // jobs point here
  Puts& operator=(const Puts&) = delete;

  /// `room`: came with the object's bytes, which lie in it. Null: the caller's planes.
  void put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room, CallTerms terms,
           std::function<void(Status)> done);
  /// True for a put whose planes may have no bytes: whole blocks' exact rows alone.
  static bool reads_rows(const PutRequest& request);
  /// A put for which reads_rows() is true; each plane's bytes are brought when it is its turn.
  void put_rows(uint64_t session, PutRequest request, RowSource rows, CallTerms terms,
                std::function<void(Status)> done);
  /// Starts the put of an object that identify() has named. `states_of`: the object whose states it
  /// shares; may be null.
  void start(Reservation& r, PutRequest request, std::shared_ptr<RoomCharges> room,
             std::shared_ptr<Call<Status>> call, RamObject states_of = {});

 private:
  struct Job {
    std::shared_ptr<Call<Status>> call;
    uint64_t session = 0, reservation = 0;
    std::shared_ptr<RoomCharges> room;
    ObjectName name;
    ObjectName asked;  ///< its name as the client gave it, rows that were there already included
    std::shared_ptr<EncodeWork> work = std::make_shared<EncodeWork>();
    Charge index;
    size_t runners = 0;
  };
  using JobPtr = std::shared_ptr<Job>;

  /// A put with its bytes: of `room` (null: the caller's), or brought by `rows`.
  struct Given {
    std::shared_ptr<RoomCharges> room;
    RowSource rows;
    RamObject states_of;
  };
  void put(uint64_t session, PutRequest request, Given given, CallTerms terms,
           std::function<void(Status)> done);
  void start(Reservation& r, PutRequest request, Given given, std::shared_ptr<Call<Status>> call);

  void gather(const JobPtr& job);
  void read_source(const JobPtr& job, Record& source);
  Status check_copy(const Reservation& r, const CopyRows& copy, const Record& source);
  /// Workers that one put keeps busy.
  size_t runners(const EncodeWork& work) const;
  void charge(const JobPtr& job);
  void with_room(const JobPtr& job, Room room, RoomDone done);
  void encode(const JobPtr& job);
  void finish(const JobPtr& job, Result<RamObject> result);
  void note_fit(RealmState& realm, const StreamBytes& streams);
  static uint64_t stored_bytes(const Reservation& r, const EncodeInput& in);

  Env& env_;
  ObjectIndex& index_;
  RamChecks& checks_;
  RamRoom& room_;
  Promoter& promoter_;
  Calls& calls_;
  Reservations& reservations_;
};

}  // namespace kv
