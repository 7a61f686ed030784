// The schema's fields.
#include "cachesvc/daemon/http_status.h"

#include <algorithm>

#include "cachesvc/daemon/http_json.h"
#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

void tiers(JsonText& out, const Metrics& m) {
  out.name("tiers").open('[');
  for (const std::string tier : {"ram", "ssd"}) {
    const auto stat = [&](const std::string& what) {
      return as_number(stat_of_metrics(m, tier + what));
    };
    out.open('{').field("tier", tier).field("used_bytes", stat("_used_bytes"));
    out.field("limit_bytes", stat(tier == "ram" ? "_budget_bytes" : "_limit_bytes"));
    out.field("objects", stat("_objects")).close('}');
  }
  out.close(']');
}

void namespaces(JsonText& out, const Metrics& m) {
  out.name("namespaces").open('[');
  for (const auto& [ns, use] : m.namespaces) {
    out.open('{').field("namespace", ns);
    out.field("sessions", as_number(use.sessions)).field("models", as_number(use.models));
    out.field("entries", as_number(use.entries)).field("holds", as_number(use.holds));
    out.field("reservations", as_number(use.reservations));
    out.field("segment_bytes", as_number(use.segment_bytes));
    if (use.has_quota) {
      out.field("calls", as_number(use.calls)).field("ram_bytes", as_number(use.ram_bytes));
      out.field("ram_quota_bytes", as_number(use.ram_quota_bytes));
      out.field("ssd_bytes", as_number(use.ssd_bytes));
      out.field("ssd_quota_bytes", as_number(use.ssd_quota_bytes));
    }
    out.close('}');
  }
  out.close(']');
}

void models(JsonText& out, const Metrics& m) {
  out.name("models").open('[');
  for (const auto& [key, use] : m.measures.models.all()) {
    out.open('{').field("namespace", key.first).field("model", key.second);
    out.field("fetches", as_number(use.fetches)).field("misses", as_number(use.misses));
    out.field("stores", as_number(use.stores));
    out.field("hit_tokens_ram", as_number(use.hit_tokens_ram));
    out.field("hit_tokens_ssd", as_number(use.hit_tokens_ssd));
    out.field("hit_tokens_remote", as_number(use.hit_tokens_remote));
    out.field("miss_tokens", as_number(use.miss_tokens));
    out.field("prefill_saved_seconds", as_number(use.prefill_ms_saved) / 1000).close('}');
  }
  out.close(']');
}

// Buckets as counts below each bound, the last one without a bound.
void histograms(JsonText& out, const Metrics& m) {
  out.name("histograms").open('[');
  for (const NamedHistogram& named : histograms_of(m.measures)) {
    const Histogram& h = *named.histogram;
    out.open('{').field("name", named.metric);
    if (*named.label != 0) out.field(named.label, named.value);
    out.field("count", as_number(h.count())).field("sum", named.scale * as_number(h.sum()));
    out.name("bounds").open('[');
    for (size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
      out.number(named.scale * as_number(h.bound(i)));
    }
    out.close(']').name("counts").open('[');
    for (size_t i = 0; i < Histogram::kBuckets; ++i) out.number(as_number(h.count(i)));
    out.close(']').close('}');
  }
  out.close(']');
}

}  // namespace

uint64_t stat_of_metrics(const Metrics& metrics, std::string_view stat) {
  const auto& values = metrics.stats.values;
  auto at = std::find_if(values.begin(), values.end(),
                         [&](const auto& value) { return value.first == stat; });
  return at == values.end() ? 0 : at->second;
}

std::string status_json(const Metrics& m) {
  JsonText out;
  out.open('{').field("schema", kStatusSchema).field("version", kProgramVersion);
  out.name("ready").boolean(m.not_ready.empty()).field("not_ready", m.not_ready);
  out.field("uptime_seconds", m.seconds);
  tiers(out, m);
  namespaces(out, m);
  models(out, m);
  histograms(out, m);
  out.name("stats").open('{');
  for (const auto& [name, value] : m.stats.values) out.field(name, as_number(value));
  out.close('}').close('}');
  return out.take() + "\n";
}

}  // namespace kv
