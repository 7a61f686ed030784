// Owners: the parts of the core, each the owner of its state, and which others each may call.
//
// The lowest is first: a part calls only parts before it (tools/tidy.py has the floors). The other
// way goes Env::progress(), after which go_on() asks every part that may wait. CacheCore has one
// Owners, and unit tests have one each. Loop thread only.
//
// The three long ways, by the files that a reader opens in turn (core/):
//   put      puts ──> encode (worker) ──> reservations
//   commit   commits ──> publications: visible ──> levels waits for the level, meanwhile
//            spiller ──> spill_writer (worker packs, SSD writes) ──> records: renamed
//            ──> syncer ──> records: durable ──> levels answers
//   fetch    fetches plans ──> hit_reads ──> ram_room ──> promoter ──> read_job (disk) ──> records:
//            in RAM ──> fetches plans again ──> fetch_reply ──> made_replies, if rows are decoded
//            or cut; what local tiers lack: remote_reads
#pragma once

#include <memory>
#include <utility>

#include "cachesvc/core/client_memory.h"
#include "cachesvc/core/commits.h"
#include "cachesvc/core/compactor.h"
#include "cachesvc/core/demotes.h"
#include "cachesvc/core/drain.h"
#include "cachesvc/core/expirer.h"
#include "cachesvc/core/fetches.h"
#include "cachesvc/core/opens.h"
#include "cachesvc/core/scrubber.h"
#include "cachesvc/core/stats.h"
#include "cachesvc/core/sweeps.h"
#include "cachesvc/core/why.h"

namespace kv {

struct Owners {
  explicit Owners(std::shared_ptr<Env> e) : env(std::move(e)) {}
  Owners(const Owners&) = delete;  // owners point to each other
  Owners& operator=(const Owners&) = delete;

  const std::shared_ptr<Env> env;
  Found found;
  Departures departures{*env};
  RequestRing ring{*env};
  ObjectIndex index{env->namespaces, env->pool->most_bytes(), env->options.ssd_limit_bytes};
  Ends ends{index};
  Expiries expiries;
  Records records{index, &departures};
  Misses misses{*env, index, departures};
  SsdLane lane{*env, index, records};
  RemoteWrites remote_writes{*env, index, lane};
  Recency recency{*env, index, records, lane};
  RamChecks checks{*env, index, recency};
  Syncer syncer{*env, records, lane};
  Models models{*env, index, lane, found};
  ModelRecords model_records{*env, index, lane, models};
  RemoteProfiles remote_profiles{*env, models};
  WritePace pace{*env, lane};
  SpillRetries spill_retries{*env, records};
  SpillWriter spill_writer{*env,          index,  records, lane,          checks,       models,
                           model_records, syncer, pace,    remote_writes, spill_retries};
  Spiller spiller{*env, index, records, lane, pace, spill_retries, spill_writer};
  RamRoom room{*env, index, records, lane, recency, spiller};
  Promoter promoter{*env, index, records, lane, spiller};
  Compactor compactor{*env, index, checks};
  WarmStart warm{*env, index, lane, room, promoter};
  Placer placer{*env, index, ends, expiries, records, found, models, room};
  Reconciler reconciler{*env, index, ends, records, lane, pace, found, placer, room, warm};
  Scrubber scrubber{*env, index, records, lane, found, model_records, spiller, room, promoter};
  Calls calls{*env};
  Levels levels{*env, index, lane, spiller, syncer, room, promoter};
  Eraser eraser{*env,   index,         records,    lane,  found,
                models, model_records, reconciler, calls, remote_writes};
  RemoteReads remote_reads{*env, index, records, remote_writes, spiller, room, eraser};
  Holds holds{*env, index, room, calls};
  Reservations reservations{*env, index, room, calls};
  Puts puts{*env, index, checks, room, promoter, calls, reservations};
  Publications publications{*env,          index,   ends,   records, lane,        expiries,
                            model_records, spiller, levels, eraser,  reservations};
  Commits commits{*env, index, calls, eraser, reservations, puts, publications};
  Fetches fetches{*env, index, checks, room, promoter, calls, holds, misses, ring, remote_reads};
  Why why_missed{*env, index, calls, misses, ring};
  Demotes demotes{*env, index, lane, recency, spiller, calls, holds};
  Sweeps sweeps{*env, index, records, lane, found, recency, spiller, models, calls};
  Expirer expirer{*env, index, lane, found, expiries, calls, eraser};
  Opens opens{*env, lane, models, model_records, remote_profiles, room, calls};
  ClientMemory client_memory{*env, index, room, compactor, calls};
  Drain drain{*env, records, lane, recency, model_records, pace, spiller, calls, eraser};
  Stats stats{*env,         index, records,       lane,         found,
              models,       pace,  promoter,      calls,        holds,
              reservations, ring,  remote_writes, remote_reads, remote_profiles};

  void begin();
  /// Has every part that waits check again; follows progress().
  void go_on();
  /// Answers all calls and stops all steps; the SSD does what is due, then ends.
  void close(const char* why);
  /// Ends the process if what some owner keeps disagrees with itself or with those below it.
  void check_invariants();
};

}  // namespace kv
