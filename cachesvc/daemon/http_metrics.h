// Metrics as Prometheus' text format 0.0.4 has them. OPERATING.md, "The HTTP port". Pure.
//
// The number of series is bounded: kMaxNamespaceUses namespaces, kMaxModelUses models, and as many
// stats and histograms as there are.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/core/metrics.h"

namespace kv {

inline constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

/// A histogram under its metric's name and, if it has one, a label.
struct NamedHistogram {
  const char* metric;  ///< without cachesvc_
  const char* help;
  double scale;       ///< of its values in seconds
  const char* label;  ///< empty: none
  const char* value;
  const Histogram* histogram;
};
/// All of them; those of one metric stand together.
std::vector<NamedHistogram> histograms_of(const Measures& measures);
inline double as_number(uint64_t value) { return static_cast<double>(value); }
/// The shortest text of a number.
std::string number_text(double number);

std::string prometheus_text(const Metrics& metrics);

}  // namespace kv
