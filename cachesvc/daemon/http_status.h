// Status: the service at a glance, as JSON of one schema (OPERATING.md, "The HTTP port"). Pure.
#pragma once

#include <string>

#include "cachesvc/core/metrics.h"

namespace kv {

inline constexpr const char* kStatusSchema = "cachesvc-status-1";

/// The stat of this name; 0: there is none.
uint64_t stat_of_metrics(const Metrics& metrics, std::string_view stat);
std::string status_json(const Metrics& metrics);

}  // namespace kv
