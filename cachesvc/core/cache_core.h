// CacheCore: the tiered cache as one owner on one loop thread; sockets and TieredCache drive it.
//
// The life of an object (block, tail, supplement, snapshot):
//
//   put ──> encoding ──> finished ──commit──> in RAM, dirty ──spill──> in RAM and on SSD (clean)
//             (worker)   invisible,             │      ▲                  │            ▲
//                        pinned                 │      └─ write failed    │ evict:     │ promote
//                          │                    │ evict under pressure,   │ a drop     │ (worker,
//                          │ abort, timeout     │ counted                 ▼            │ verified)
//                          ▼                    ▼                       on SSD only ───┘
//                         gone <──────────────gone <── erase, SSD eviction, damage (quarantine)
//
// Threads: every call, and every callback, on the loop thread; only pool() may be used from others.
// Pure jobs on immutable input (codec, packing, SSD files) run on the worker executor; nothing
// blocks the loop. A callback runs exactly once, possibly before the call returns.
//
// Memory: large memory is asked for, small memory is there. Bodies, slabs, buffers and decoded
// replies come from the pool: where it has no room the answer is `busy`, or a shorter hit. A failed
// small allocation (at most 64 KiB) ends the core: EventKind::no_memory, every call under way and
// every later one answers `unavailable`, the SSD's files are as after a kill -9. Leases stay
// readable. The cache may be opened again once this core and its jobs are gone.
//
// Parts, each with its state in core/<name>.h: core/owners.h. Calls go downward only
// (tools/tidy.py); a part that changed something calls Env::progress().
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/cache_options.h"
#include "cachesvc/core/call.h"
#include "cachesvc/core/client_memory.h"
#include "cachesvc/core/metrics.h"
#include "cachesvc/core/row_source.h"
#include "cachesvc/namespace_options.h"
#include "cachesvc/ram_pool.h"
#include "proto/client.h"

namespace kv {

template <typename T>
using Done = std::function<void(T)>;

/// Stats have these names; they are stable. Tokens count served or asked prompt tokens; bytes of
/// RAM are charged bytes, bytes of SSD allocated bytes.
///   counters  lookups fetches stores commits aborts reservations_expired
///             hit_tokens_ram hit_tokens_ssd hit_tokens_remote miss_tokens fetch_misses
///             puts_duplicate copies objects_committed objects_lost commits_foreign ends_kept
///             ends_missed prefill_ms_told prefill_ms_saved encoded_planes encode_raw_fallbacks
///             nonfinite_planes spills_queued spills_deferred spills_held spills_written
///             spills_failed spills_dropped spill_raw_bytes spill_packed_bytes promotions
///             promotion_joins promotion_failures ram_evicted_clean ram_evicted_dirty ssd_evicted
///             index_evicted erased_objects expired_objects superseded_tails copied_supplements
///             demoted_objects warm_objects ram_moved ram_verified ram_damaged scrubbed_files
///             scrubbed_bytes scrub_passes scrub_damaged quarantined read_io_errors io_timeouts
///             busy denied (users, tokens) over_quota (more at a time than a namespace may have)
///             loop_handlers loop_over_1ms loop_over_1ms_cpu
///             with a shared tier also: remote_questions remote_found remote_unreached
///             remote_objects_read remote_bytes_read remote_read_failures remote_objects_written
///             remote_bytes_written remote_existed remote_writes_dropped remote_writes_failed
///             remote_refused_full remote_damaged remote_foreign remote_erased
///             remote_erase_unreached; gauges: remote_write_queue remote_nodes remote_nodes_lost
///             remote_profiles_other remote_profiles_unheard (models) remote_silent (1: it did not
///             answer, and is not asked)
///             short_REASON (fetches and lookups that were not served whole, by the reason of
///             proto/request_record.h: short_never_stored, short_evicted_ssd, …)
///   gauges    ram_budget_bytes ram_used_bytes ram_peak_bytes ram_stored_bytes ram_staging_bytes
///             ram_promotion_bytes ram_spill_bytes ram_reply_bytes ram_index_bytes
///             ram_session_bytes ram_model_bytes ram_recycled_bytes
///             ram_objects ssd_objects ssd_limit_bytes ssd_used_bytes ssd_quarantine_bytes
///             ssd_other_key_files ssd_other_key_bytes ssd_other_key_dropped
///             spill_queue_bytes spill_queue_limit_bytes reservations sessions models
///             waiting_calls pins holds held_bytes loop_longest_us loop_longest_cpu_us (a handler
///             of the last one to two minutes) ssd_written_bytes ssd_catalog_written_bytes
///             ssd_written_day_bytes ssd_write_percent (of spill_raw_bytes) ssd_hangs (1: it is not
///             waited for) recovered_objects recovered_skipped recovery_adopted
///             recovery_adopted_bytes recovery_rows_dropped recovery_quarantined
///             recovery_unreadable recovery_unread recovery_ms recovery_ephemeral_dropped
///   of one's namespace   namespace_sessions namespace_models namespace_reservations
///             namespace_entries (blocks and tails of its open models)
///             namespace_holds namespace_segment_bytes; of one with a
///             quota also namespace_calls namespace_ram_bytes namespace_ram_quota_bytes
///             namespace_ssd_bytes namespace_ssd_quota_bytes
///             namespace_in_flight_bytes namespace_in_flight_quota_bytes
/// A session with Right::own sees only the gauges of its namespace, and its models.
struct Owners;

class CacheCore {
 public:
  /// Opens and recovers the SSD directory on the calling thread, before anything is served. `loop`
  /// runs one handler at a time (an io_context with one run(), or a test's); `workers` compute and
  /// may be the same; `disk` (none: the workers) runs what a device that hangs may block for ever.
  /// Returns: invalid_argument (an option), busy (no memory), and what SsdTier::open and recover
  /// return.
  static Result<std::unique_ptr<CacheCore>> create(CacheOptions options,
                                                   boost::asio::any_io_executor loop,
                                                   boost::asio::any_io_executor workers,
                                                   boost::asio::any_io_executor disk = {});
  /// Call it on the loop thread or after that ended. Jobs still on workers finish on their own;
  /// their results are dropped. Calls that wait get `unavailable`.
  ~CacheCore();
  CacheCore(const CacheCore&) = delete;  // handlers point here
  CacheCore& operator=(const CacheCore&) = delete;

  /// A session: one client, bound to one namespace, owner of its reservations and waiting calls.
  /// Returns: invalid_argument (namespace empty or over kMaxNamespaceBytes), busy (max_sessions),
  /// unavailable (draining).
  Result<uint64_t> connect(const std::string& ns, Right right = Right::all);
  /// Counts a client that was refused before it had a session.
  void count_denied();
  /// Frees the session's reservations and pins; its waiting calls get `unavailable`.
  void disconnect(uint64_t session);

  /// The verbs of Client (proto/client.h), with the same values and errors; also not_found
  /// (session), deadline_exceeded, unavailable (draining: only commit, abort, fetch and stats go
  /// on).
  void open(uint64_t session, OpenRequest request, CallTerms terms, Done<Result<OpenReply>> done);
  /// A handle of a model of the session's namespace that is in use, by its name, for verbs that
  /// need no more of it. Returns: not_found, invalid_argument (several have the name).
  Result<uint32_t> attach(uint64_t session, const std::string& model);
  void lookup(uint64_t session, QueryRequest request, CallTerms terms,
              Done<Result<LookupReply>> done);
  void reserve(uint64_t session, ReserveRequest request, CallTerms terms,
               Done<Result<ReserveReply>> done);
  /// `room`: of the Staging whose body's slices are the object's planes; the put then waits for no
  /// more (busy). Null: the planes are the caller's, charged while the core holds them.
  void put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room, CallTerms terms,
           Done<Status> done);
  /// A put whose planes lie somewhere else, one after another, and have no bytes: workers bring
  /// them plane by plane. Precondition: reads_rows(request).
  void put_rows(uint64_t session, PutRequest request, RowSource rows, CallTerms terms,
                Done<Status> done);
  /// True for whole blocks' exact rows alone.
  static bool reads_rows(const PutRequest& request);
  void commit(uint64_t session, uint64_t reservation, Durability wait_for, CallTerms terms,
              Done<Result<CommitReply>> done);
  void abort(uint64_t session, uint64_t reservation, CallTerms terms, Done<Status> done);
  void fetch(uint64_t session, FetchRequest request, CallTerms terms,
             Done<Result<FetchReply>> done);
  void prefetch(uint64_t session, PrefetchRequest request, CallTerms terms,
                Done<Result<LookupReply>> done);
  void demote(uint64_t session, DemoteRequest request, CallTerms terms,
              Done<Result<DemoteReply>> done);
  /// As demote, for everything of the namespace that nothing pins: what is on the SSD leaves RAM,
  /// the rest is asked to be written. Never loses anything.
  void demote_all(uint64_t session, CallTerms terms, Done<Result<DemoteAllReply>> done);
  /// The namespace's files go: what RAM has too stays there, the rest is lost (`left`: both).
  void clear_ssd(uint64_t session, CallTerms terms, Done<Result<DemoteAllReply>> done);
  void retain(uint64_t session, RetainRequest request, CallTerms terms,
              Done<Result<RetainReply>> done);
  void expire(uint64_t session, ExpireRequest request, CallTerms terms,
              Done<Result<ExpireReply>> done);
  void hold(uint64_t session, HoldRequest request, CallTerms terms, Done<Result<HoldReply>> done);
  void renew(uint64_t session, uint64_t hold, Milliseconds time, CallTerms terms,
             Done<Result<Milliseconds>> done);
  void release(uint64_t session, uint64_t hold, CallTerms terms, Done<Status> done);
  /// An erase runs in steps, others are served in between; the namespace's commits and erases wait
  /// for its end.
  void erase_entry(uint64_t session, QueryRequest request, CallTerms terms,
                   Done<Result<uint64_t>> done);
  void erase(uint64_t session, uint32_t model, Query query, CallTerms terms,
             Done<Result<uint64_t>> done);
  void stats(uint64_t session, CallTerms terms, Done<Result<StatsReply>> done);
  /// Everything that is counted, of the whole service, without a session. `done` never, if the core
  /// ends before.
  void metrics(Done<Metrics> done);
  /// The reason why clients had better wait; empty: there is none.
  std::string not_ready() const;
  void why(uint64_t session, WhyRequest request, CallTerms terms, Done<Result<WhyReply>> done);
  /// Ends the session's calls of this tag that still wait, each with `cancelled`; others are left
  /// alone. What one held goes. A commit or an erase that has begun goes on, as after its deadline.
  void cancel(uint64_t session, uint64_t tag);

  /// Limits of what is written to the SSD from now on, in place of the options' (0: none).
  void limit_writes(uint64_t bytes_per_second, uint64_t bytes_per_day);

  /// Memory that connections take. As long as the core lives.
  ClientMemory& memory();

  /// SIGTERM: new sessions, stores and opens get `unavailable`; the spill queue is written, the SSD
  /// tier synced and its catalog checkpointed, by the deadline. Returns: deadline_exceeded or
  /// io_error with what is left; the state on disk is valid in any case.
  void drain(Deadline deadline, Done<Status> done);

  /// A small allocation failed in whoever runs the loop, outside of the core's own steps: the core
  /// ends as it does when one of them finds none.
  void no_memory();

  /// Ends the process if what the core keeps disagrees with itself. For tests: its cost grows with
  /// all that is stored.
  void check_invariants() const;
  const std::shared_ptr<RamPool>& pool() const;
  const CacheOptions& options() const;

 private:
  explicit CacheCore(std::unique_ptr<Owners> owners);
  std::unique_ptr<Owners> own_;
};

}  // namespace kv
