// CodingLog: logs the coded layers of a model once for each model and profile, of the last
// kMaxReported of them. Loop thread only.
#pragma once

#include <set>
#include <string>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/event_log.h"

namespace kv {

class CodingLog {
 public:
  static constexpr size_t kMaxReported = 4096;

  explicit CodingLog(EventLog& events) : events_(events) {}

  /// `own`: the service's setting.
  void opened(const std::string& model, const OpenReply& reply, const CodingSettings& own);

 private:
  EventLog& events_;
  std::set<std::string> reported_;  ///< namespace, fingerprint, profile
};

}  // namespace kv
