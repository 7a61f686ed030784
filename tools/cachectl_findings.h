// Findings: what a daemon's counters mean, in sentences that say what to do. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/request_record.h"

namespace kv::cachectl {

/// A daemon's counters by name, and its recent requests that were not served whole.
struct Seen {
  std::map<std::string, uint64_t> stats;
  std::vector<std::string> models;  ///< names of those that are open
  /// Of those whose transforms do not fit their rows: "model X: its rows take …".
  std::vector<std::string> misfits;
  std::vector<RequestRecord> missed;
  uint64_t at_ms = 0;  ///< time of the answer, since 1970

  uint64_t operator[](const std::string& name) const;  ///< 0: it has no such value
};

/// The doctor's sentences, the worst first.
std::vector<std::string> findings(const Seen& seen);

}  // namespace kv::cachectl
