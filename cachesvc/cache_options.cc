// Checks of the options, and the RAM budget that they mean on this machine. Runs once, at start.
#include "cachesvc/cache_options.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace kv {
namespace {

constexpr uint32_t kMaxWorkers = 256;

template <typename T>
Status within(const char* name, T value, T low, T high) {
  if (value >= low && value <= high) return {};
  std::ostringstream message;
  message << name << " " << value << " outside " << low << ".." << high;
  return invalid_argument(message.str());
}

Status positive(const char* name, Milliseconds value) {
  return within<int64_t>(name, value.count(), 1, 86'400'000);
}

Result<uint64_t> mem_available() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return Status(StatusCode::io_error, "/proc/meminfo has no MemAvailable");
}

// Bytes that the limits of this process's cgroup (v2) and its parents leave; no limit: the largest
// number.
uint64_t cgroup_left() {
  uint64_t left = std::numeric_limits<uint64_t>::max();
  std::ifstream in("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(in, line)) {
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  while (true) {
    std::string folder = "/sys/fs/cgroup" + path;
    std::ifstream max_file(folder + "/memory.max"), current_file(folder + "/memory.current");
    uint64_t max = 0, current = 0;
    if (max_file >> max && current_file >> current) {
      left = std::min(left, max - std::min(max, current));
    }
    size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) break;
    path.resize(slash);
  }
  return left;
}

}  // namespace

Status validate(const CacheOptions& o) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  if (o.ram_budget_bytes != 0) {
    KV_RETURN_IF_ERROR(
        within<uint64_t>("ram_budget_bytes", o.ram_budget_bytes, kMinRamBudgetBytes, kNoLimit));
  }
  KV_RETURN_IF_ERROR(within("ram_fraction", o.ram_fraction, kMinRamFraction, kMaxRamFraction));
  KV_RETURN_IF_ERROR(within("staging_fraction", o.staging_fraction, 0.01, 0.9));
  KV_RETURN_IF_ERROR(within("index_fraction", o.index_fraction, 0.001, 0.9));
  if (!o.ssd_dir.empty()) {
    KV_RETURN_IF_ERROR(within("ssd_limit_bytes", o.ssd_limit_bytes, kMinLimitBytes, kNoLimit));
  }
  KV_RETURN_IF_ERROR(within<uint64_t>("spill_queue_bytes", o.spill_queue_bytes, 1, kNoLimit));
  KV_RETURN_IF_ERROR(within<uint32_t>("spill_batch_files", o.spill_batch_files, 1,
                                      static_cast<uint32_t>(kMaxBatchFiles)));
  KV_RETURN_IF_ERROR(within<uint32_t>("workers", o.workers, 1, kMaxWorkers));
  KV_RETURN_IF_ERROR(within<uint32_t>("max_sessions", o.max_sessions, 1, 1u << 20));
  KV_RETURN_IF_ERROR(within<uint32_t>("max_models", o.max_models, 1, 1u << 16));
  KV_RETURN_IF_ERROR(within<uint32_t>("max_reservations", o.max_reservations, 1, 1u << 20));
  KV_RETURN_IF_ERROR(within<uint32_t>("max_holds", o.max_holds, 1, 1u << 20));
  KV_RETURN_IF_ERROR(within<int64_t>("max_hold_time", o.max_hold_time.count(), 1, 86'400'000));
  KV_RETURN_IF_ERROR(within("hold_fraction", o.hold_fraction, 0.0, 0.9));
  KV_RETURN_IF_ERROR(within<uint32_t>("max_waiting_calls", o.max_waiting_calls, 1, 1u << 24));
  KV_RETURN_IF_ERROR(
      within<int64_t>("durable_group_delay", o.durable_group_delay.count(), 0, 60'000));
  constexpr Milliseconds kYear = std::chrono::hours(24 * 365);
  KV_RETURN_IF_ERROR(within<int64_t>("verify_after", o.verify_after.count(), 0, kYear.count()));
  KV_RETURN_IF_ERROR(positive("reservation_timeout", o.reservation_timeout));
  KV_RETURN_IF_ERROR(positive("room_wait", o.room_wait));
  KV_RETURN_IF_ERROR(positive("io_timeout", o.io_timeout));
  KV_RETURN_IF_ERROR(within<uint32_t>("disk_threads", o.disk_threads, 1, kMaxWorkers));
  KV_RETURN_IF_ERROR(positive("io_backoff", o.io_backoff));
  KV_RETURN_IF_ERROR(within<int64_t>("drain_timeout", o.drain_timeout.count(), 0, 86'400'000));
  if (o.block_end_interval != kEndsByPrice) {
    KV_RETURN_IF_ERROR(
        within<uint32_t>("block_end_interval", o.block_end_interval, 0, kMaxBlockTokens));
  }
  KV_RETURN_IF_ERROR(within<size_t>("quotas", o.quotas.size(), 0, kMaxNamespaces));
  return within<uint32_t>("min_prefix_tokens", o.min_prefix_tokens, 1, kMaxTokens);
}

Status check_shares(const CacheOptions& options, uint64_t ram_bytes) {
  uint64_t ram = 0, ssd = 0;
  for (const auto& [name, quota] : options.quotas) {
    ram += quota.ram_bytes;
    ssd += quota.ssd_bytes;
  }
  auto over = [](const char* what, uint64_t sum, uint64_t limit) {
    return invalid_argument("namespaces: quotas of " + std::string(what) + " are " +
                            std::to_string(sum) + " bytes together, there are " +
                            std::to_string(limit));
  };
  if (ram > ram_bytes) return over("RAM", ram, ram_bytes);
  if (ssd > 0 && options.ssd_dir.empty()) return over("the SSD", ssd, 0);
  return ssd > options.ssd_limit_bytes ? over("the SSD", ssd, options.ssd_limit_bytes) : Status();
}

Result<uint64_t> ram_budget(const CacheOptions& options) {
  if (options.ram_budget_bytes != 0) return options.ram_budget_bytes;
  KV_ASSIGN_OR_RETURN(uint64_t available, mem_available());
  double bytes = options.ram_fraction * static_cast<double>(std::min(available, cgroup_left()));
  const uint64_t most = options.ram_most_bytes == 0 ? UINT64_MAX : options.ram_most_bytes;
  return std::max(kMinRamBudgetBytes, std::min(most, static_cast<uint64_t>(bytes)));
}

}  // namespace kv
