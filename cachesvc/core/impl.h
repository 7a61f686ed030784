// CacheCore::Impl: the state behind the verbs, and how they share it. Internal to cachesvc/core.
//
// Everything runs on the loop executor unless a comment says "worker"; a worker gets values and
// returns values. Each step may throw std::bad_alloc: the process that it belongs to is dropped
// then, and what it owned ends by itself (cachesvc/loop/task.h); what many processes share is left
// as it was, or as a sound whole with less in it. Files: recover, warm, open, models, reserve, put
// (+ encode, needs), adopt, commit, fetch, verify, promote, spill, scrub, hang, budget, room,
// index_share, erase, stats and drain, each with the verbs of that name; object_index (+ plan,
// ends, orphans).
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <list>
#include <map>
#include <set>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/core/call.h"
#include "cachesvc/core/counters.h"
#include "cachesvc/core/model_state.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/object_index.h"
#include "cachesvc/core/pins.h"
#include "cachesvc/core/recency.h"
#include "cachesvc/core/records.h"
#include "cachesvc/core/reservation.h"
#include "cachesvc/core/room.h"
#include "cachesvc/core/write_budget.h"
#include "cachesvc/loop/lane.h"
#include "cachesvc/loop/timer.h"
#include "storage/file_names.h"
#include "storage/ssd_tier.h"

namespace kv {

/// A store's `now`: what could not be read is asked for again, whenever that was.
constexpr Clock::time_point kUnreadableIsMissing = Clock::time_point::min();

class CacheCore::Impl : public std::enable_shared_from_this<CacheCore::Impl> {
 public:
  Impl(CacheOptions o, boost::asio::any_io_executor loop, boost::asio::any_io_executor workers,
       boost::asio::any_io_executor disk, std::shared_ptr<RamPool> pool);
  void start();
  void close() noexcept;
  bool closed() const { return closed_; }
  void check_invariants() const;

  // start (_recover, _warm)
  Status open_ssd();
  void warm_start();
  void keep_ready();
  void warm_next(std::shared_ptr<std::deque<PinnedName>> left);
  void add_recovery(const Recovery& part);
  void adopt_models(Recovery& recovery);
  RealmState* recovered_realm(const Object& object);
  /// A record that has its place in the index, and what is on the SSD of it.
  struct Adopted {
    Record* record;
    const KnownObject* known;
  };
  void adopt_objects(const std::vector<KnownObject>& objects);
  bool adopt_object(const KnownObject& known, bool last, std::vector<Adopted>& linked);
  void reconcile() noexcept;
  void read_files();
  void place(std::chrono::microseconds pause) noexcept;
  void reconcile_after(std::chrono::microseconds pause) noexcept;
  bool room_in_index(const std::vector<KnownObject>& objects);
  void reconciled() noexcept;
  /// Valid files may belong to a model or profile that seems unused.
  bool files_unknown() const { return recovery_.unread > 0 || some_unreadable_; }
  /// Plain records and profiles may be those of files that another key sealed.
  bool others_may_name_records() const { return recovery_.other_key_files > 0; }
  /// At once, or when every file has been read: what erases must reach is known then. Not at all
  /// if the call has ended by then.
  void when_all_known(std::shared_ptr<CallBase> call, std::function<void()> then);

  // calls
  Result<uint64_t> connect(const std::string& ns);
  void disconnect(uint64_t session) noexcept;
  Result<std::shared_ptr<ModelState>> model_of(uint64_t session, uint32_t handle);
  template <typename T>
  std::shared_ptr<Call<T>> begin(uint64_t session, Deadline deadline, Done<T> done);
  void add_call(uint64_t session, std::shared_ptr<CallBase> call, Deadline deadline);
  void forget_call(CallBase* call);

  // _open
  void open(uint64_t session, OpenRequest request, Deadline deadline, Done<Result<OpenReply>> done);
  struct OpenJob;
  void next_open();
  void run_open(std::shared_ptr<OpenJob> job);
  struct OpenPlan;
  struct OpenMade;
  Result<OpenPlan> plan_open(const std::string& ns, OpenRequest& request);
  static Result<OpenMade> make_open(const OpenPlan& plan, SsdTier* ssd, Charge charge);
  void records_of_open(std::shared_ptr<OpenJob> job, OpenMade made);
  OpenReply open_reply(SessionState& session, const std::shared_ptr<ModelState>& model);
  void finish_open(OpenJob& job);

  // _models
  void write_records(ModelState& model);
  struct RecordsJob;
  void put_records(ModelRecord record, std::shared_ptr<const Profile> profile,
                   std::shared_ptr<ModelState> model, std::function<void(Status)> done);
  bool unused(const std::shared_ptr<ModelState>& model) const;
  void rest_models() noexcept;
  void rest_unused();
  RestingModel resting(const ModelState& model);
  bool forget_resting();
  void release_realms(std::vector<Id> gone_models = {},
                      std::vector<Id> gone_profiles = {}) noexcept;
  uint64_t model_limit() const;
  uint64_t record_limit() const;
  static uint64_t encoding_bytes(const Profile* profile);
  static RecordBytes record_bytes(const ModelSpec& spec, const Profile& profile);
  uint64_t records_on_ssd(const std::string& ns, const CodedModel& with) const;
  struct LastOfModel;
  Status place_for_model(const std::string& ns);
  Status room_for_model(const std::string& name, uint64_t bytes);
  Status room_for_records(const std::string& ns, const CodedModel& model);
  std::shared_ptr<const CodedModel> shared_model(std::shared_ptr<CodedModel> made);

  // _reserve
  void reserve(uint64_t session, ReserveRequest request, Deadline deadline,
               Done<Result<ReserveReply>> done);
  std::vector<Need> needs_of(Reservation& r);
  Room room_of(const Reservation& r, const std::vector<Need>& needs);
  Status fits(const Reservation& r, const Room& room);
  void arm(Reservation& r);
  void reservation_timer(uint64_t id, const boost::system::error_code& error);
  Reservation* find_reservation(uint64_t session, uint64_t id);
  void end_reservation(uint64_t id, const std::function<void()>& then = {}) noexcept;
  class EndGuard;

  // _put
  struct PutJob;
  void put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
           Deadline deadline, Done<Status> done);
  void start_put(Reservation& r, PutRequest request, std::shared_ptr<RoomCharges> room,
                 Deadline deadline, std::shared_ptr<Call<Status>> call, RamObject states_of = {});
  Status identify(Reservation& r, Object& object);
  Status identify_supplement(Reservation& r, Object& object);
  Status identify_snapshot(Reservation& r, Object& object);
  void cut_rows(const Reservation& r, Object& object);
  Status check_copy(const Reservation& r, const CopyRows& copy, const Record& source);
  uint64_t put_bytes(const Reservation& r, const PutJob& job) const;
  void gather_sources(std::shared_ptr<PutJob> job);
  void charge_put(std::shared_ptr<PutJob> job);
  void put_room(const PutJob& job, Room room, RoomDone done);
  void run_put(std::shared_ptr<PutJob> job);
  void finish_put(PutJob& job, Result<RamObject> result) noexcept;
  void keep_finished(Reservation& r, const RamObject& object, Charge& index);

  // _adopt
  struct Sources;
  Sources sources_of(Reservation& r, std::vector<Holding>& own);
  std::vector<PutRequest> row_puts(const Reservation& r, const Sources& sources,
                                   std::vector<Holding>& own) const;
  struct PointPut;
  std::vector<PointPut> point_puts(const Reservation& r, const Sources& sources) const;
  void adopt_from_others(Reservation& r, Deadline deadline);
  uint32_t block_end_interval(const RealmState& realm) const;

  // _commit
  struct CommitWait;
  void commit(uint64_t session, uint64_t id, Durability wait_for, Deadline deadline,
              Done<Result<CommitReply>> done);
  void commit_idle(uint64_t session, uint64_t id, Durability wait_for,
                   std::shared_ptr<Call<Result<CommitReply>>> call);
  void commit_now(uint64_t session, uint64_t id, Durability wait_for,
                  std::shared_ptr<Call<Result<CommitReply>>> call);
  struct Gap;
  Gap check_coverage(Reservation& r, uint32_t tokens);
  static bool left_out(const Reservation& r);
  uint32_t find_lost(Reservation& r, CommitReply& reply);
  void publish(Reservation& r, uint32_t tokens, CommitReply& reply);
  std::vector<Record*> path_of(Reservation& r, uint32_t tokens);
  void supersede_tails(Reservation& r, uint32_t tokens);

  // _levels
  void wait_for_level(CommitWait wait);
  Durability level_of(const CommitWait& wait);
  bool stuck(const CommitWait& wait);
  void read_path(const std::shared_ptr<CommitWait>& wait);
  void read_paths() noexcept;
  void read_now(const std::vector<PinnedName>& names, RoomCharges& room);
  void answer_commit(CommitWait& wait);
  void check_commit_waits() noexcept;
  void abort(uint64_t session, uint64_t id, Deadline deadline, Done<Status> done);

  // _fetch
  struct FetchCall;
  struct FetchCost;
  struct FetchBatch;
  void lookup(uint64_t session, uint32_t model, Query query, bool start, Deadline deadline,
              Done<Result<LookupReply>> done);
  void fetch(uint64_t session, FetchRequest request, Deadline deadline,
             Done<Result<FetchReply>> done);
  void fetch_step(std::shared_ptr<FetchCall> call);
  Result<Hit> plan_fetch(FetchCall& call);
  FetchCost cost_of(const FetchCall& call, const Hit& hit) const;
  uint64_t decoded_bytes_of(const FetchCall& call, const Record& record) const;
  uint32_t shorter(const FetchCall& call, const Hit& hit, uint64_t needed, uint64_t bytes,
                   bool missing_only) const;
  uint32_t shorter_reply(const FetchCall& call, const Hit& hit, uint64_t decoded) const;
  uint64_t room_beside(const Hit& hit, uint64_t wanted);
  void fetch_promote(std::shared_ptr<FetchCall> call, const Hit& hit);
  void promote_window(std::shared_ptr<FetchCall> call, std::shared_ptr<FetchBatch> batch);
  void fetch_reply(std::shared_ptr<FetchCall> call, const Hit& hit);
  void fetch_decode(std::shared_ptr<FetchCall> call, FetchReply reply);
  void finish_fetch(const FetchCall& call, FetchReply reply);
  std::shared_ptr<const void> lease_hold(Pins pins);

  // _verify
  bool due(const Record& record) const;
  void verify_hit(std::shared_ptr<FetchCall> call, const Hit& hit);
  void verify_ram(const Record& record, std::function<void()> done);
  void lose_ram(Record& record) noexcept;

  // _promote
  struct ReadJob;
  struct Promotion;
  /// `held`: what else the read keeps reserved, until it returns.
  void promote(Record& record, Charge stored, Charge promotion, std::function<void(Status)> done,
               std::shared_ptr<const void> held = nullptr);
  void watch_promotion(const ObjectName& name, Promotion& promotion, Milliseconds limit);
  void promotion_timeout(const ObjectName& name, uint64_t serial, uint64_t ended_reads);
  void join_promotion(Record& record, std::function<void(Status)> done);
  bool promoting(const Record& record) const;
  void promoted(const ObjectName& name, uint64_t serial, Result<RamObject> result) noexcept;
  bool lose_file(Record& record, const Status& status) noexcept;
  void note_loss(const ObjectName& name);
  void lose(Record& record) noexcept;
  Room room_to_promote(const Record& record) const;

  // _room
  uint64_t reply_limit() const;
  bool account_full(const Room& room) const;
  Status can_never_fit(const Room& room) const;
  void with_room(Room room, Deadline deadline, RoomDone done);
  std::shared_ptr<RoomCharges> try_room(const Room& room);
  std::shared_ptr<RoomCharges> make_room(const Room& room, bool dirty_too, uint64_t most_bytes);
  std::shared_ptr<RoomCharges> room_now(const Room& room, uint64_t most_bytes = UINT64_MAX);
  void evict(Record& record);
  bool leave_ram(Record& record);
  static bool may_spill(const Record& record);
  void pump_room();
  void room_timeout(uint64_t id);
  bool spill_for_room(uint64_t bytes);

  // _index_share
  uint64_t index_limit() const;
  /// True if so many bytes more are over the index's share of the budget.
  bool index_full(uint64_t bytes) const;
  Record* index_victim(bool dirty_too);
  bool make_index_room(uint64_t bytes, bool dirty_too, size_t most_objects);
  void keep_most_recent(std::vector<KnownObject>& objects);
  void drop_over_share(std::vector<KnownObject>& objects);
  void drop_files(std::vector<ObjectName> names);

  // _spill
  struct SpillBatch;
  struct SpillItem;
  /// What became of a wish that an object be on the SSD.
  enum class Asked : uint8_t {
    on_its_way,  ///< there, queued or being written
    waits,       ///< for the queue
    in_vain,     ///< no SSD; or nobody could ever reach it there
  };
  Asked enqueue_spill(Record& record);
  void check_old_file(const Record& record);
  ModelState* model_state(const Record& record);
  void queue_dirty();
  void refill_spill_queue();
  bool wait_for_records(SpillBatch& batch);
  void records_written() noexcept;
  void pump_spill() noexcept;
  void pump_later() noexcept;
  void go_on_spilling() noexcept;
  void start_batch();
  bool hold_spills();
  bool held_up() const;
  void order_by_use();
  bool packs_codes() const;
  void pack_batch(std::shared_ptr<SpillBatch> batch);
  void write_batch(std::shared_ptr<SpillBatch> batch) noexcept;
  std::vector<ObjectName> ssd_victims(uint64_t bytes);
  void batch_written(std::shared_ptr<SpillBatch> batch,
                     Result<std::vector<PutResult>> results) noexcept;
  void item_written(const SpillItem& item, const PutResult& result) noexcept;
  void finish_batch(std::shared_ptr<SpillBatch> batch) noexcept;
  void fail_batch(std::shared_ptr<SpillBatch> batch) noexcept;
  void write_step(std::shared_ptr<SpillBatch> batch);
  void write_in_place(std::shared_ptr<SpillBatch> batch, uint64_t short_by);
  void spill_failed(Record& record) noexcept;
  void write_failed(const ObjectName* name, const Status& status) const noexcept;
  void schedule_spill_retry();
  void retry_spills(size_t most);
  void charge_writes();
  void keep_state();
  std::chrono::system_clock::time_point wall_now() const;
  void restore_state(const Recovery& found);
  void schedule_sync();
  void run_sync();
  void synced(uint64_t sync) noexcept;
  void end_sync() noexcept;
  void tell_use(Record& record) noexcept;
  void tell_last_uses();

  // _scrub
  void scrub_in(Clock::duration pause) noexcept;
  void scrub_next();
  void scrub_list();
  void scrub_found(FileKind kind, const PinnedName& which);
  void rewrite_record(FileKind kind, const Id& id);

  // _hang
  void watch_ssd();
  void ssd_returned() noexcept;
  /// A job of the SSD from its making to its result, or to its end without one.
  struct SsdTurn;
  /// Reads that were given up have not returned: nothing more is read until they do.
  bool reads_hang() const { return late_reads_ > 0; }
  /// What changes the SSD has not moved for io_timeout: nobody waits for it.
  bool writes_hang() const { return writes_hang_; }

  // _erase
  void erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
             Done<Result<uint64_t>> done);
  struct EraseJob;
  /// What an erase removes: `whole`, of a model or namespace nothing is left.
  struct EraseScope {
    std::vector<Record*> targets;
    bool whole = false;
    bool of_namespace = false;
  };
  /// Of a session's namespace; asked again when the erase before has ended.
  using FindScope = std::function<Result<EraseScope>()>;
  void prepare_erase(EraseJob& job, const EraseScope& scope, std::function<void(Status)> finish);
  void submit_part(EraseJob& job, size_t part, bool fence) noexcept;
  void erase_step(const std::shared_ptr<EraseJob>& job) noexcept;
  void end_erase(EraseJob& job) noexcept;
  bool erasing(const std::string& ns) const;
  void end_erases() noexcept;
  void erase_entry(uint64_t session, uint32_t model, Query query, Deadline deadline,
                   Done<Result<uint64_t>> done);
  void erase_found(uint64_t session, FindScope find, std::shared_ptr<Call<Result<uint64_t>>> call);
  Result<EraseScope> scope_of(uint64_t session, uint32_t model, const Query& query);
  void forget_records(const std::string& ns, std::vector<Id>& gone) noexcept;
  using Tasks = std::vector<std::shared_ptr<WorkerTask>>;
  struct Unlinks;
  using Parts = std::list<std::vector<ObjectName>>;
  Tasks erase_tasks(size_t parts, std::vector<std::shared_ptr<Unlinks>>& unlinks, bool and_scrub,
                    std::function<void(Status)> done);
  std::shared_ptr<WorkerTask> scrub_task(std::function<void(Status)> done);
  Result<std::vector<Record*>> namespace_targets(uint64_t session, const Query& query);
  Result<std::vector<Record*>> erase_targets(const ModelState& model, const Query& query);
  Result<std::vector<Record*>> entry_targets(const ModelState& model, const Query& query);
  void stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done);
  StatsReply stats_now(const SsdStats& ssd) const;
  void drain(Deadline deadline, Done<Status> done);
  void drain_now(std::shared_ptr<Call<Status>> call);
  void end_drain(std::shared_ptr<Call<Status>> call, bool again);
  void check_drained() noexcept;

  // _unlink
  void unlinked(Unlinks& files) noexcept;
  void sort_out_left_files(const std::set<const Record*>& own) noexcept;

  // shared
  /// `text()`, if somebody listens and there is memory for it.
  template <typename Text>
  void event(EventKind kind, Text text, uint64_t count = 1) const noexcept {
    if (options_.on_event) (void)if_memory([&] { options_.on_event({kind, text(), count}); });
  }
  void allocate_staging(uint64_t session, uint64_t bytes, StagingFor what, Deadline deadline,
                        Done<Result<Staging>> done);
  Pins pin_all(const std::vector<Record*>& records);
  void pin_too(Pins& pins, Record& record);
  void release_pins(const std::vector<PinnedName>& pins) noexcept;
  Record* find_pinned(const PinnedName& pinned);
  Record* find_usable(
      const ObjectName& name);  ///< by a store: null also for one whose reads failed
  /// Runs `job` on a worker, then `then(result)` on the loop, unless the core is gone by then.
  template <typename Job, typename Then>
  void on_worker(Job job, Then then) {
    task(std::move(job), std::move(then))->submit(workers_);
  }
  /// As on_worker, one after another in the order of the calls: everything that changes the SSD.
  template <typename Job, typename Then>
  void on_ssd(Job job, Then then) {
    ssd_lane_->submit(ssd_task(std::move(job), std::move(then)));
  }
  /// As on_ssd, behind the unlinks of erases too: what they removed is gone by then.
  template <typename Job, typename Then>
  void on_ssd_last(Job job, Then then) {
    ssd_lane_->submit_behind(ssd_task(std::move(job), std::move(then)), true);
  }
  /// All that can fail of on_ssd: what must not be half done makes its task first, and then
  /// submits it to ssd_lane_.
  template <typename Job, typename Then>
  std::shared_ptr<WorkerTask> ssd_task(Job job, Then then);
  /// As on_ssd; first the least recently used leaves go, of at least `bytes`.
  template <typename Job, typename Then>
  void on_ssd_with_room(uint64_t bytes, Job job, Then then);
  template <typename Job, typename Then>
  std::shared_ptr<WorkerTask> task(Job job, Then then) {
    return std::make_shared<TaskOf<Impl, Job, Then>>(weak_from_this(), loop_, std::move(job),
                                                     std::move(then));
  }
  /// `handler` later on the loop, unless the core is gone by then.
  template <typename Handler>
  void later(Handler handler) {
    boost::asio::post(loop_, [weak = weak_from_this(), handler = std::move(handler)]() mutable {
      if (auto self = weak.lock(); self && !self->closed_) handler();
    });
  }

  CacheOptions options_;
  boost::asio::any_io_executor loop_, workers_, disk_;
  std::shared_ptr<Lane> ssd_lane_;
  std::shared_ptr<WorkerTask> ssd_end_;  ///< the last one
  std::shared_ptr<RamPool> pool_;
  std::shared_ptr<SsdTier> ssd_;  ///< null: no SSD tier
  Charge read_buffers_;           ///< of it, all but one
  std::shared_ptr<LoopGate> gate_;
  std::shared_ptr<Wake> room_wake_, open_wake_, spill_wake_;  ///< pump_room, next_open, and:
                                                              ///< go_on_spilling
  bool closed_ = false;
  ObjectIndex index_;
  Records records_{index_};
  Counters count_;
  uint64_t recovered_objects_ = 0, recovered_skipped_ = 0;
  Recovery recovery_;  ///< sums so far, without objects; `unread`: files still to be read
  bool some_unreadable_ = false;         ///< valid files may be among what could not be read
  bool reading_files_ = false;           ///< a part of those unread; its objects come to the loop
  std::vector<KnownObject> unplaced_;    ///< read, and not yet in the index
  std::set<ObjectName> lost_meanwhile_;  ///< since then: their files are gone, or going
  std::map<Id, std::shared_ptr<const Profile>> recovered_profiles_;  ///< until all is read
  std::unique_ptr<boost::asio::steady_timer> reconcile_timer_;
  std::vector<std::pair<std::shared_ptr<CallBase>, std::function<void()>>> after_reconcile_;

  std::map<uint64_t, SessionState> sessions_;
  uint64_t next_session_ = 1;
  std::map<std::pair<std::string, Id>, std::shared_ptr<ModelState>> models_;
  std::map<std::pair<std::string, Id>, RestingModel> resting_;
  uint64_t rests_ = 0;
  std::map<Id, std::weak_ptr<const CodedModel>> coded_;  ///< by key
  std::map<uint64_t, Reservation> reservations_;
  uint64_t next_reservation_ = 1;
  std::map<CallBase*, std::weak_ptr<CallBase>> calls_;
  std::deque<std::shared_ptr<OpenJob>> opens_;
  bool opening_ = false;

  struct RoomWaiter {
    uint64_t id;
    Room room;
    Deadline deadline;
    RoomDone done;
    std::unique_ptr<boost::asio::steady_timer> timer;
  };
  std::list<RoomWaiter> room_waiters_;
  uint64_t next_waiter_ = 1;
  bool pumping_room_ = false;
  bool room_step_over_ = false;  ///< more may go, but not in this handler: room_wake_ goes on

  std::map<ObjectName, Promotion> promotions_;

  uint64_t late_reads_ = 0;  ///< given up, not returned
  uint64_t ended_reads_ = 0;
  uint64_t ssd_jobs_ = 0, ssd_jobs_ended_ = 0;
  bool writes_hang_ = false;
  std::unique_ptr<boost::asio::steady_timer> ssd_watch_;
  std::function<void()> open_anyway_;  ///< ends the open under way without its records

  WriteBudget budget_;
  uint64_t charged_writes_ = 0;  ///< of what the device was given
  std::unique_ptr<boost::asio::steady_timer> budget_timer_;

  WriteBudget scrub_pace_;              ///< of reads
  std::deque<ListedFile> scrub_files_;  ///< the next ones
  std::string scrub_after_;             ///< the last one of those before; empty: a pass begins
  uint32_t scrub_waited_ = 0;           ///< times for the next one
  std::unique_ptr<boost::asio::steady_timer> scrub_timer_;
  bool scrub_stopped_ = false;  ///< no memory for the timer: the next call goes on

  bool some_unqueued_ = false;         ///< for lack of memory nobody asked for them
  bool spills_work_ = false;           ///< one was written since failed ones were last tried
  bool spills_lacked_memory_ = false;  ///< some were given up, since a drain last looked
  std::unique_ptr<boost::asio::steady_timer> retry_timer_;
  std::shared_ptr<SpillBatch> packing_, writing_;
  std::vector<EraseJob*> erases_;                   ///< between two of their steps
  std::vector<std::function<void()>> after_erase_;  ///< commits, erases, drains
  Parts left_files_;  ///< that are to go and could not: every erase tries them again
  std::multiset<ObjectName> unlinking_;  ///< files that go behind others' writes: until then
                                         ///< nothing of their names is written
  bool syncing_ = false, spill_timer_armed_ = false, making_ready_ = false;
  uint64_t failed_syncs_ = 0;
  std::unique_ptr<boost::asio::steady_timer> sync_timer_, spill_timer_;
  Recency recency_;
  std::list<std::shared_ptr<CommitWait>> commit_waits_;
  bool reading_paths_ = false;

  bool draining_ = false;
  std::vector<std::function<void()>> drain_checks_;
};

struct CacheCore::Impl::Promotion {
  uint64_t serial = 0;
  Pins pins;
  std::vector<std::function<void(Status)>> waiters;
  std::shared_ptr<ReadJob> job;
  std::unique_ptr<boost::asio::steady_timer> timer;  ///< io_timeout
};

struct CacheCore::Impl::CommitWait {
  std::vector<PinnedName> path;
  std::shared_ptr<ModelState> model;
  Durability wait_for = Durability::accepted;
  uint64_t failed_syncs = 0;  ///< of the core, when the wait began
  CommitReply reply;
  std::shared_ptr<Call<Result<CommitReply>>> call;
  Clock::time_point answer_at = Clock::time_point::max();  ///< with what was reached by then
  std::unique_ptr<Timer> timer;
  bool wants_read = false;  ///< some file of the path was not read since the start
  bool reading = false;     ///< room for the next ones is on its way
  bool no_room = false;     ///< RAM has none to read the rest
};

/// Ends a reservation with its scope, unless told to keep it.
class CacheCore::Impl::EndGuard {
 public:
  EndGuard(Impl& core, uint64_t id) : core_(core), id_(id) {}
  ~EndGuard() {
    if (!kept_) core_.end_reservation(id_);
  }
  EndGuard(const EndGuard&) = delete;  // ends it once
  EndGuard& operator=(const EndGuard&) = delete;
  void keep() { kept_ = true; }

 private:
  Impl& core_;
  const uint64_t id_;
  bool kept_ = false;
};

/// Without memory `done` has its answer before std::bad_alloc goes on to the caller.
template <typename T>
std::shared_ptr<Call<T>> CacheCore::Impl::begin(uint64_t session, Deadline deadline, Done<T> done) {
  std::shared_ptr<Call<T>> call;
  try {
    call = std::make_shared<Call<T>>(std::move(done));
  } catch (const std::bad_alloc&) {
    done(T(out_of_memory()));
    throw;
  }
  add_call(session, call, deadline);
  return call;
}

}  // namespace kv

#include "cachesvc/core/ssd_jobs.h"
