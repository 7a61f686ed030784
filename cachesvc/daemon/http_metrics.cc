// Families of metrics, one after the other.
#include "cachesvc/daemon/http_metrics.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "cachesvc/daemon/http_names.h"
#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

constexpr double kMicroseconds = 1e-6;

std::string label_text(std::string_view name) {
  std::string out;
  for (char c : shown_name(name)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Text {
 public:
  void family(std::string_view name, const char* type, std::string_view help) {
    out_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    out_.append(name).append(" ").append(type).append("\n");
  }
  void sample(std::string_view name, std::string_view labels, double value) {
    out_.append(name);
    if (!labels.empty()) out_.append("{").append(labels).append("}");
    out_.append(" ").append(number_text(value)).append("\n");
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

void stats(Text& out, const StatsReply& stats) {
  std::string last;  // stats of one metric stand together
  for (const auto& [stat, value] : stats.values) {
    const StatName* known = find_stat_name(stat);
    const StatName other{stat.c_str(), StatKind::gauge, stat.c_str(), 1, "A stat (PROTOCOL.md)."};
    const StatName& name = known == nullptr ? other : *known;
    const std::string metric = metric_name(name);
    if (metric != last) {
      out.family(metric, name.kind == StatKind::counter ? "counter" : "gauge", name.help);
    }
    last = metric;
    out.sample(series_name(name), "", name.scale * as_number(value));
  }
}

void histogram(Text& out, const NamedHistogram& named) {
  const Histogram& h = *named.histogram;
  const std::string name = std::string("cachesvc_") + named.metric;
  const std::string label =
      *named.label == 0 ? "" : std::string(named.label) + "=\"" + named.value + "\"";
  const std::string before = label.empty() ? "" : label + ",";
  uint64_t so_far = 0;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    so_far += h.count(i);
    const bool last = i + 1 == Histogram::kBuckets;
    const std::string bound = last ? "+Inf" : number_text(named.scale * as_number(h.bound(i)));
    out.sample(name + "_bucket", before + "le=\"" + bound + "\"", as_number(so_far));
  }
  out.sample(name + "_sum", label, named.scale * as_number(h.sum()));
  out.sample(name + "_count", label, as_number(so_far));
}

void histograms(Text& out, const Measures& measures) {
  std::string_view last;
  for (const NamedHistogram& named : histograms_of(measures)) {
    if (named.metric != last) {
      out.family(std::string("cachesvc_") + named.metric, "histogram", named.help);
    }
    last = named.metric;
    histogram(out, named);
  }
}

struct NamespaceGauge {
  const char* metric;
  const char* help;
  uint64_t NamespaceUse::*field;
};
constexpr NamespaceGauge kNamespaceGauges[] = {
    {"cachesvc_namespace_sessions", "Connections of a namespace.", &NamespaceUse::sessions},
    {"cachesvc_namespace_models", "Models of a namespace.", &NamespaceUse::models},
    {"cachesvc_namespace_entries", "Blocks and tails of its models.", &NamespaceUse::entries},
    {"cachesvc_namespace_reservations", "Stores of it under way.", &NamespaceUse::reservations},
    {"cachesvc_namespace_holds", "Prompts that its clients hold.", &NamespaceUse::holds},
    {"cachesvc_namespace_segment_bytes", "Bytes of segments that its clients may map.",
     &NamespaceUse::segment_bytes},
};

std::string of_namespace(std::string_view ns) { return "namespace=\"" + label_text(ns) + "\""; }

// The common share of those without a quota is nobody's.
void quotas(Text& out, const Metrics& metrics) {
  const auto each = [&](const char* name, const char* help, uint64_t NamespaceUse::*ram,
                        uint64_t NamespaceUse::*ssd) {
    out.family(name, "gauge", help);
    for (const auto& [ns, use] : metrics.namespaces) {
      if (!use.has_quota) continue;
      const std::string label = of_namespace(ns) + ",tier=";
      out.sample(name, label + "\"ram\"", as_number(use.*ram));
      out.sample(name, label + "\"ssd\"", as_number(use.*ssd));
    }
  };
  each("cachesvc_namespace_used_bytes", "Bytes of a namespace that has a quota.",
       &NamespaceUse::ram_bytes, &NamespaceUse::ssd_bytes);
  each("cachesvc_namespace_quota_bytes", "Bytes that it can count on; 0: no share of its own.",
       &NamespaceUse::ram_quota_bytes, &NamespaceUse::ssd_quota_bytes);
}

void namespaces(Text& out, const Metrics& metrics) {
  for (const NamespaceGauge& gauge : kNamespaceGauges) {
    out.family(gauge.metric, "gauge", gauge.help);
    for (const auto& [ns, use] : metrics.namespaces) {
      out.sample(gauge.metric, of_namespace(ns), as_number(use.*gauge.field));
    }
  }
  quotas(out, metrics);
}

struct ModelCounter {
  const char* metric;
  const char* help;
  uint64_t ModelUse::*field;
  const char* tier;  ///< a label's value; empty: none
  double scale;
};
constexpr ModelCounter kModelCounters[] = {
    {"cachesvc_model_fetches_total", "Fetches of a model.", &ModelUse::fetches, "", 1},
    {"cachesvc_model_misses_total", "Fetches and lookups that found nothing.", &ModelUse::misses,
     "", 1},
    {"cachesvc_model_stores_total", "Stores that became visible.", &ModelUse::stores, "", 1},
    {"cachesvc_model_miss_tokens_total", "Tokens asked for and not served.", &ModelUse::miss_tokens,
     "", 1},
    {"cachesvc_model_prefill_saved_seconds_total", "Prefill saved, of what clients told.",
     &ModelUse::prefill_ms_saved, "", 1e-3},
    {"cachesvc_model_stream_bytes_total", "Bytes of rows that transforms coded.",
     &ModelUse::stream_bytes, "", 1},
    {"cachesvc_model_stream_promised_bytes_total", "Bytes that its profile promised for them.",
     &ModelUse::stream_promised_bytes, "", 1},
    {"cachesvc_model_hit_tokens_total", "Tokens served, by the tier that had them.",
     &ModelUse::hit_tokens_ram, "ram", 1},
    {"cachesvc_model_hit_tokens_total", "", &ModelUse::hit_tokens_ssd, "ssd", 1},
    {"cachesvc_model_hit_tokens_total", "", &ModelUse::hit_tokens_remote, "remote", 1},
};

void models(Text& out, const ModelUses& uses) {
  for (const ModelCounter& counter : kModelCounters) {
    if (*counter.help != 0) out.family(counter.metric, "counter", counter.help);
    for (const auto& [key, use] : uses.all()) {
      std::string label = of_namespace(key.first) + ",model=\"" + label_text(key.second) + "\"";
      if (*counter.tier != 0) label += std::string(",tier=\"") + counter.tier + "\"";
      out.sample(counter.metric, label, counter.scale * as_number(use.*counter.field));
    }
  }
}

}  // namespace

std::string number_text(double number) {
  char text[32];
  const bool whole = number == std::floor(number) && number >= 0 && number < 9e15;
  auto end = whole ? std::to_chars(text, text + sizeof(text), static_cast<uint64_t>(number))
                   : std::to_chars(text, text + sizeof(text), number);
  return {text, end.ptr};
}

std::vector<NamedHistogram> histograms_of(const Measures& m) {
  std::vector<NamedHistogram> out;
  for (size_t tier = 0; tier < kTiers; ++tier) {
    out.push_back({"fetch_duration_seconds", "Fetches, from their call to their answer.",
                   kMicroseconds, "tier", to_string(static_cast<Tier>(tier)), &m.fetch[tier]});
  }
  constexpr const char* kWaits = "Waits of requests that got their turn.";
  constexpr const char* kIdle = "Time from an object's last use to its eviction.";
  const NamedHistogram more[] = {
      {"store_duration_seconds", "Stores, from their reservation to their commit.", kMicroseconds,
       "", "", &m.store},
      {"promotion_duration_seconds", "Reads of one object from the SSD, with their wait.",
       kMicroseconds, "", "", &m.promotion},
      {"queue_wait_seconds", kWaits, kMicroseconds, "queue", "room", &m.room_wait},
      {"queue_wait_seconds", kWaits, kMicroseconds, "queue", "read", &m.read_wait},
      {"queue_wait_seconds", kWaits, kMicroseconds, "queue", "write", &m.spill_wait},
      {"object_lifetime_seconds", "Time from an object's store to its eviction from both tiers.", 1,
       "", "", &m.lifetime},
      {"object_idle_before_eviction_seconds", kIdle, 1, "tier", "ram", &m.idle_ram},
      {"object_idle_before_eviction_seconds", kIdle, 1, "tier", "ssd", &m.idle_ssd},
      {"object_reuse_gap_seconds", "Time between two uses of an object by fetches.", 1, "", "",
       &m.reuse_gap},
  };
  out.insert(out.end(), std::begin(more), std::end(more));
  return out;
}

std::string prometheus_text(const Metrics& metrics) {
  Text out;
  out.family("cachesvc_build_info", "gauge", "The program's version.");
  out.sample("cachesvc_build_info", std::string("version=\"") + kProgramVersion + "\"", 1);
  out.family("cachesvc_ready", "gauge", "1 while /readyz says so.");
  out.sample("cachesvc_ready", "", metrics.not_ready.empty() ? 1 : 0);
  out.family("cachesvc_uptime_seconds", "gauge", "Time since the start.");
  out.sample("cachesvc_uptime_seconds", "", metrics.seconds);
  stats(out, metrics.stats);
  histograms(out, metrics.measures);
  namespaces(out, metrics);
  models(out, metrics.measures.models);
  return out.take();
}

}  // namespace kv
