// Counters and gauges of the core, the SSD tier and the loop.
#include "cachesvc/core/stats.h"

#include <algorithm>

#include "cachesvc/loop/loop_watch.h"

namespace kv {
namespace {

constexpr size_t kMaxReportedParts = 1024;  // in one reply, of all models together

uint64_t microseconds(Clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

void add(StatsReply& out, const char* name, uint64_t value) {
  out.values.emplace_back(name, value);
}

}  // namespace

void Stats::stats(uint64_t session, CallTerms terms, std::function<void(Result<StatsReply>)> done) {
  auto call = calls_.begin<Result<StatsReply>>(session, terms, std::move(done));
  if (call->finished()) return;
  const SessionState* asked = calls_.session(session);
  if (!asked) return call->fail({StatusCode::not_found, "no such session"});
  with_others([this, call](const Others& others) {
    // The session is there: its end would have ended the call.
    if (!call->finished()) call->finish(now(*calls_.session(call->session), others));
  });
}

template <typename Then>
void Stats::with_others(Then then) {
  const auto& tier = env_.options.remote.tier;
  if (!lane_ && !tier) return then(Others());
  env_.on_worker(
      [ssd = lane_.ssd(), tier] {
        return Others{ssd ? ssd->stats() : SsdStats(), tier ? tier->state() : SharedTierState()};
      },
      std::move(then));
}

StatsReply Stats::now(const SessionState& asked, const Others& others) const {
  StatsReply out;
  if (asked.right == Right::all) service(out, others);
  of_namespace(out, asked.ns);
  models(out, asked);
  return out;
}

void Stats::metrics(std::function<void(Metrics)> done) {
  with_others([this, done = std::move(done)](const Others& others) {
    Metrics out;
    service(out.stats, others);
    out.measures = env_.measures;
    out.namespaces = namespaces();
    out.not_ready = not_ready();
    out.seconds = env_.seconds();
    done(std::move(out));
  });
}

std::string Stats::not_ready() const {
  if (env_.draining()) return "draining";
  if (promoter_.hangs() || lane_.hangs()) return "the SSD hangs";
  if (found_.all_known()) return "";
  return "recovering: " + std::to_string(found_.sums().unread) + " files are still to be read";
}

// Namespaces with a quota, a session or a model; beyond kMaxNamespaceUses their sums.
std::map<std::string, NamespaceUse> Stats::namespaces() const {
  std::map<std::string, NamespaceUse> out;
  const auto of = [&out](const std::string& ns) -> NamespaceUse& {
    auto at = out.find(ns);
    if (at != out.end()) return at->second;
    return out[out.size() < Metrics::kMaxNamespaceUses ? ns : ""];
  };
  for (size_t share = 1; share < env_.namespaces.count(); ++share) {
    const auto id = static_cast<ShareId>(share);
    const NamespaceQuota& quota = env_.namespaces.quota(id);
    NamespaceUse& use = of(env_.namespaces.name(id));
    use.has_quota = true;
    use.calls += calls_.use(id).calls;
    use.ram_bytes += index_.tiers().ram().bytes(id);
    use.ram_quota_bytes += quota.ram_bytes;
    use.ssd_bytes += index_.tiers().ssd().bytes(id);
    use.ssd_quota_bytes += quota.ssd_bytes;
  }
  calls_.each_namespace([&](const std::string& ns) { ++of(ns).sessions; });
  for (const auto& [key, model] : models_.all()) {
    NamespaceUse& use = of(key.first);
    ++use.models;
    if (model->realm) use.entries += model->realm->tree.size();
  }
  reservations_.each_namespace([&](const std::string& ns) { ++of(ns).reservations; });
  holds_.each_namespace([&](const std::string& ns, size_t number) { of(ns).holds += number; });
  if (const SegmentStore* segments = env_.pool->segments()) {
    for (auto& each : out) {
      each.second.segment_bytes =
          segments->announced_bytes([&](const std::string& owner) { return owner == each.first; });
    }
  }
  return out;
}

void Stats::of_namespace(StatsReply& out, const std::string& ns) const {
  uint64_t models = 0, entries = 0;
  for (const auto& [key, model] : models_.all()) {
    if (key.first != ns) continue;
    ++models;
    if (model->realm) entries += model->realm->tree.size();
  }
  add(out, "namespace_sessions", calls_.sessions_of(ns));
  add(out, "namespace_models", models);
  add(out, "namespace_entries", entries);
  add(out, "namespace_reservations", reservations_.size_of(ns));
  add(out, "namespace_holds", holds_.size_of(ns));
  if (const SegmentStore* segments = env_.pool->segments()) {
    add(out, "namespace_segment_bytes",
        segments->announced_bytes([&](const std::string& owner) { return owner == ns; }));
  }
  const ShareId share = env_.namespaces.share(ns);
  if (share == kCommonShare) return;
  const NamespaceQuota& quota = env_.namespaces.quota(share);
  add(out, "namespace_calls", calls_.use(share).calls);
  add(out, "namespace_ram_bytes", index_.tiers().ram().bytes(share));
  add(out, "namespace_ram_quota_bytes", quota.ram_bytes);
  add(out, "namespace_ssd_bytes", index_.tiers().ssd().bytes(share));
  add(out, "namespace_ssd_quota_bytes", quota.ssd_bytes);
  add(out, "namespace_in_flight_bytes", Transit(env_).in_flight(share));
  add(out, "namespace_in_flight_quota_bytes", quota.in_flight_bytes);
}

void Stats::service(StatsReply& out, const Others& others) const {
#define KV_COUNTER(name) add(out, #name, env_.count.name);
  KV_CACHE_COUNTERS(KV_COUNTER)
#undef KV_COUNTER
  for (size_t i = 1; i < kMissings; ++i) {
    const auto missing = static_cast<Missing>(i);
    out.values.emplace_back(std::string("short_") + to_string(missing), ring_.count(missing));
  }
  ram_and_index(out);
  ssd(out, others.ssd);
  if (remote_writes_) remote(out, others.shared);
  add(out, "reservations", reservations_.size());
  add(out, "sessions", calls_.sessions());
  add(out, "models", models_.all().size());
  add(out, "waiting_calls", calls_.under_way());
  add(out, "holds", holds_.size());
  add(out, "retains", holds_.retains());
  add(out, "held_bytes", holds_.bytes());
  loop(out);
  recovery(out);
}

void Stats::ram_and_index(StatsReply& out) const {
  const RamPool& pool = *env_.pool;
  add(out, "ram_budget_bytes", pool.most_bytes());
  add(out, "ram_used_bytes", pool.used_bytes());
  add(out, "ram_peak_bytes", pool.peak_bytes());
  for (size_t i = 0; i < kChargeKinds; ++i) {
    auto kind = static_cast<ChargeKind>(i);
    out.values.emplace_back(std::string("ram_") + to_string(kind) + "_bytes",
                            pool.used_bytes(kind));
  }
  add(out, "ram_recycled_bytes", pool.recycled_bytes());
  if (const SegmentStore* segments = pool.segments()) {
    add(out, "segments", segments->segments());
    add(out, "segment_announced_bytes", segments->announced_bytes());
    add(out, "segment_idle_bytes", segments->fixed_idle_bytes());
  }
  add(out, "ram_objects", index_.tiers().ram().size());
  add(out, "ssd_objects", index_.tiers().ssd().size());
  add(out, "pins", index_.tiers().pins());
}

void Stats::ssd(StatsReply& out, const SsdStats& ssd) const {
  add(out, "ssd_limit_bytes", ssd.limit_bytes);
  add(out, "ssd_used_bytes", ssd.used_bytes);
  add(out, "ssd_quarantine_bytes", ssd.quarantine_bytes);
  add(out, "ssd_other_key_files", ssd.other_key_files);
  add(out, "ssd_other_key_bytes", ssd.other_key_bytes);
  add(out, "ssd_other_key_dropped", ssd.other_key_dropped);
  add(out, "spill_queue_bytes", records_.lists().queue_bytes());
  add(out, "spill_queue_limit_bytes", env_.options.spill_queue_bytes);
  add(out, "ssd_written_bytes", ssd.device_bytes_written);
  add(out, "ssd_catalog_written_bytes", ssd.catalog_bytes_written);
  add(out, "ssd_written_day_bytes", pace_.day_bytes());
  // Bytes written to the device, in percent of the objects' bytes in RAM.
  const uint64_t raw = env_.count.spill_raw_bytes;  // 0: nothing was spilled yet
  add(out, "ssd_write_percent", raw == 0 ? 0 : 100 * ssd.device_bytes_written / raw);
  add(out, "ssd_hangs", promoter_.hangs() || lane_.hangs());
}

void Stats::remote(StatsReply& out, const SharedTierState& shared) const {
  const RemoteReads::Counts& reads = remote_reads_.counts();
  const RemoteWrites::Counts& writes = remote_writes_.counts();
  add(out, "remote_questions", reads.questions);
  add(out, "remote_found", reads.found);
  add(out, "remote_unreached", reads.unreached);
  add(out, "remote_objects_read", reads.objects);
  add(out, "remote_bytes_read", reads.bytes);
  add(out, "remote_read_failures", reads.failures);
  add(out, "remote_objects_written", writes.written);
  add(out, "remote_bytes_written", writes.bytes);
  add(out, "remote_existed", writes.existed);
  add(out, "remote_writes_dropped", writes.dropped);
  add(out, "remote_writes_failed", writes.failed);
  add(out, "remote_refused_full", shared.counts.refused_full);
  add(out, "remote_damaged", shared.counts.misses_damaged);
  add(out, "remote_foreign", shared.counts.misses_foreign);
  add(out, "remote_erased", writes.erased);
  add(out, "remote_erase_unreached", writes.unreached);
  add(out, "remote_write_queue", remote_writes_.waiting());
  add(out, "remote_nodes", shared.nodes);
  add(out, "remote_nodes_lost", shared.nodes_lost);
  add(out, "remote_profiles_other", remote_profiles_.count(FleetProfile::other));
  add(out, "remote_profiles_unheard", remote_profiles_.count(FleetProfile::unheard));
  add(out, "remote_silent", remote_reads_.silent());
}

void Stats::loop(StatsReply& out) const {
  LoopWatch& watch = LoopWatch::of(env_.loop);
  LoopWatch::Took longest = watch.longest(Clock::now());
  add(out, "loop_longest_us", microseconds(longest.wall));
  add(out, "loop_longest_cpu_us", microseconds(longest.cpu));
  add(out, "loop_handlers", watch.handlers());
  add(out, "loop_over_1ms", watch.over_1ms());
  add(out, "loop_over_1ms_cpu", watch.over_1ms_cpu());
}

void Stats::recovery(StatsReply& out) const {
  const Recovery& found = found_.sums();
  add(out, "recovered_objects", found_.objects());
  add(out, "recovered_skipped", found_.skipped());
  add(out, "recovery_adopted", found.adopted);
  add(out, "recovery_adopted_bytes", found.adopted_bytes);
  add(out, "recovery_rows_dropped", found.rows_dropped);
  add(out, "recovery_quarantined", found.quarantined);
  add(out, "recovery_unreadable", found.unreadable);
  add(out, "recovery_unread", found.unread);
  add(out, "recovery_ms", found.milliseconds);
  add(out, "recovery_ephemeral_dropped", found.ephemeral_dropped);
}

// Parts beyond the first kMaxReportedParts are left out.
void Stats::models(StatsReply& out, const SessionState& asked) const {
  size_t parts = 0;
  for (const auto& [key, model] : models_.all()) {
    if (asked.right == Right::own && key.first != asked.ns) continue;
    if (!model->coded || parts + model->coded->reports.size() > kMaxReportedParts) continue;
    parts += model->coded->reports.size();
    out.models.emplace_back(model->spec->name, model->coded->reports);
    if (const std::string words = model->realm->fit.words(); !words.empty()) {
      for (CodingReport& report : out.models.back().second) {
        const bool streams =
            report.active_k_bits == kTransformWord || report.active_v_bits == kTransformWord;
        if (streams && report.reason.empty()) report.reason = words;
      }
    }
  }
}

}  // namespace kv
