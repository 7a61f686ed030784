// Stats: the owners' counters and gauges, by the names in cache_core.h: of the whole service for a
// session with the right to it, else of its namespace. Reads all owners; loop thread only.
#pragma once

#include "cachesvc/core/calls.h"
#include "cachesvc/core/holds.h"
#include "cachesvc/core/metrics.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/remote_profiles.h"
#include "cachesvc/core/remote_reads.h"
#include "cachesvc/core/request_ring.h"
#include "cachesvc/core/reservations.h"

namespace kv {

class Stats {
 public:
  Stats(Env& env, ObjectIndex& index, const Records& records, SsdLane& lane, const Found& found,
        const Models& models, const WritePace& pace, const Promoter& promoter, Calls& calls,
        const Holds& holds, const Reservations& reservations, const RequestRing& ring,
        const RemoteWrites& remote_writes, const RemoteReads& remote_reads,
        const RemoteProfiles& remote_profiles)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        found_(found),
        models_(models),
        pace_(pace),
        promoter_(promoter),
        calls_(calls),
        holds_(holds),
        reservations_(reservations),
        ring_(ring),
        remote_writes_(remote_writes),
        remote_reads_(remote_reads),
        remote_profiles_(remote_profiles) {}

  void stats(uint64_t session, CallTerms terms, std::function<void(Result<StatsReply>)> done);
  /// Everything of the whole service, for monitoring. `done` never, if the core ends before.
  void metrics(std::function<void(Metrics)> done);
  /// The reason why clients had better wait; empty: there is none.
  std::string not_ready() const;

 private:
  /// State that other threads have.
  struct Others {
    SsdStats ssd;
    SharedTierState shared;
  };
  template <typename Then>
  void with_others(Then then);
  StatsReply now(const SessionState& asked, const Others& others) const;
  std::map<std::string, NamespaceUse> namespaces() const;
  void service(StatsReply& out, const Others& others) const;
  void of_namespace(StatsReply& out, const std::string& ns) const;
  void ram_and_index(StatsReply& out) const;
  void ssd(StatsReply& out, const SsdStats& ssd) const;
  void remote(StatsReply& out, const SharedTierState& shared) const;
  void loop(StatsReply& out) const;
  void recovery(StatsReply& out) const;
  void models(StatsReply& out, const SessionState& asked) const;

  Env& env_;
  ObjectIndex& index_;
  const Records& records_;
  SsdLane& lane_;
  const Found& found_;
  const Models& models_;
  const WritePace& pace_;
  const Promoter& promoter_;
  Calls& calls_;
  const Holds& holds_;
  const Reservations& reservations_;
  const RequestRing& ring_;
  const RemoteWrites& remote_writes_;
  const RemoteReads& remote_reads_;
  const RemoteProfiles& remote_profiles_;
};

}  // namespace kv
