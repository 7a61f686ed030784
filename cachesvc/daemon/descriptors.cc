// See descriptors.h.
#include "cachesvc/daemon/descriptors.h"

#include <sys/resource.h>

namespace kv {

Status raise_descriptor_limit(const Config& config) {
  const uint64_t needed = config.server.max_connections + kReservedDescriptors;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return {};
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  }
  return invalid_argument("server.max_connections " +
                          std::to_string(config.server.max_connections) + ": with " +
                          std::to_string(kReservedDescriptors) +
                          " files for the SSD, segments and clients' memories, " +
                          std::to_string(needed) + " must be open at a time; the system allows " +
                          std::to_string(limit.rlim_max) + " (ulimit -n, LimitNOFILE)");
}

}  // namespace kv
