// Names of stats as Prometheus has them: a unit at the end, `_total` for counters, and a sentence.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv {

enum class StatKind : uint8_t { counter, gauge };

struct StatName {
  const char* stat;  ///< in stats: "prefill_ms_saved"
  StatKind kind;
  const char* metric;  ///< without cachesvc_ and _total: "prefill_saved_seconds"
  double scale;        ///< of the stat in the metric's unit
  const char* help;
  const char* reason = "";  ///< label of one of several stats that are one metric; empty: none
};

/// The stat's; null: nobody has given it one.
const StatName* find_stat_name(std::string_view stat);
/// "cachesvc_prefill_saved_seconds_total".
std::string metric_name(const StatName& name);
/// The same with its label: `cachesvc_short_requests_total{reason="erased"}`.
std::string series_name(const StatName& name);
/// A name that others chose (a namespace's, a model's) as text for people and labels: what is no
/// UTF-8, a control character or a backslash is told in hexadecimal digits, so that no two names
/// look alike.
std::string shown_name(std::string_view name);

}  // namespace kv
